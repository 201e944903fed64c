# SPDX-License-Identifier: Apache-2.0
"""Commands of `kubectl usb` for who administers devices.

Owns arguments and output. The waiting is in waiting.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import NODE_DEVICE, WAIT_SECONDS, common, contract
from usbdra.cli.kubectl.session import ask

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient


@click.command("assign")
@common()
@NODE_DEVICE
@click.option(
    "-n", "--namespace", required=True, metavar="NAMESPACE", shell_complete=words.namespaces
)
@click.option("--force", is_flag=True, help="Delete the pods that have it elsewhere.")
@pass_invocation
def assign_command(
    invocation: Invocation, config: Path | None, device: str, namespace: str, force: bool
) -> int:
    """Let a namespace use a device, and wait until it can (status 1: not in 30 s)."""
    return _assign(invocation, config, device, namespace, force)


@click.command("unassign")
@common()
@NODE_DEVICE
@click.option("--force", is_flag=True, help="Delete the pods that use it.")
@pass_invocation
def unassign_command(invocation: Invocation, config: Path | None, device: str, force: bool) -> int:
    """Take a device from its namespace, and wait until it is given back (status 1: not in 30 s)."""
    return _assign(invocation, config, device, "", force)


@click.command("reset")
@common()
@NODE_DEVICE
@click.option("--force", is_flag=True, help="Also while it is in use: what it does then is lost.")
@pass_invocation
def reset_command(invocation: Invocation, config: Path | None, device: str, force: bool) -> int:
    """Reset a device where it is plugged in, and wait until it is back (status 1: not in 30 s).

    As pulling and plugging it again would. What its own node's host uses is never reset.
    """
    from datetime import UTC, datetime

    from usbdra import resetword
    from usbdra.cli.kubectl import waiting
    from usbdra.cli.kubectl.views import condition
    from usbdra.errors import DeviceBusy
    from usbdra.kube.errors import ApiForbidden

    names = contract(invocation)
    request = resetword.make(datetime.now(UTC), force)
    patch = {"metadata": {"annotations": {names.key(resetword.ANNOTATION): request.word}}}

    async def work(client: KubeClient) -> tuple[bool, str]:
        item = await client.get(names.node_device, device)
        outside = bool((item.get("status") or {}).get("host"))
        ready, attached = condition(item, "Ready"), condition(item, "Attached")
        if ready["status"] == "False":
            return False, ready["message"]
        if attached["status"] == "True" and not force:
            raise DeviceBusy(device, f"{attached['message']}; --force resets it all the same")
        await client.merge(names.node_device, device, patch)
        try:
            silence = waiting.NO_LEADER if outside else waiting.NO_AGENT
            return await waiting.answered(client, names, device, request, silence, WAIT_SECONDS)
        except ApiForbidden:
            return False, "asked for; the answer is an Event, which you may not see"

    return waiting.tell(invocation, device, *ask(config, work), goes_on=False)


def _assign(
    invocation: Invocation, config: Path | None, device: str, namespace: str, force: bool
) -> int:
    from usbdra.cli.kubectl import waiting

    names = contract(invocation)
    patch = {"spec": {"assignedNamespace": namespace, "force": force}}

    async def work(client: KubeClient) -> tuple[bool, str]:
        await client.merge(names.node_device, device, patch)
        return await waiting.assigned(client, names, device, namespace, WAIT_SECONDS)

    return waiting.tell(invocation, device, *ask(config, work))


COMMANDS = (assign_command, unassign_command, reset_command)
