# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb drain` and `undrain`: a node gives up its USB devices and those of others, in order.

Owns arguments, output and the order: nothing new, then what uses the node's devices, then what the
node uses. Who is evicted, and how, is the control plane's (device taint eviction, KEP 5055).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import common, contract
from usbdra.cli.kubectl.session import ask

if TYPE_CHECKING:
    from usbdra.cli.kubectl.drains import Held
    from usbdra.kube.client import KubeClient
    from usbdra.kube.custom import Contract

NODE = click.argument("node", shell_complete=words.nodes)
MANAGER = "kubectl-usb"
NAMED = 5
"""Claims that one line of progress names."""


@click.command("drain")
@common()
@NODE
@click.option(
    "--timeout", type=click.IntRange(1, 86400), default=300, show_default=True,
    metavar="SECONDS", help="How long to wait for all to be given back.",
)  # fmt: skip
@pass_invocation
def drain_command(invocation: Invocation, config: Path | None, node: str, timeout: int) -> int:
    """End all use of a node's USB devices, and the node's use of others (status 1: not in time).

    Pods that use its devices anywhere are evicted, then pods on it that use devices of other
    nodes; local use of its own devices ends with the first. Nothing new is given until
    `kubectl usb undrain`. Claims that tolerate the taint stay.
    """
    from usbdra.cli.kubectl.drains import EXPORTS, IMPORTS

    names = contract(invocation)

    async def work(client: KubeClient) -> list[Held]:
        await _known(client, node)
        await _put(client, names, node, (*EXPORTS, *IMPORTS), "NoSchedule")
        deadline = asyncio.get_running_loop().time() + timeout
        for what, pools in (("devices of this node", EXPORTS), ("ports of this node", IMPORTS)):
            await _put(client, names, node, pools, "NoExecute")
            left = await _emptied(client, names.driver, node, pools, what, deadline)
            if left:
                return left
        return []

    left = ask(config, work)
    listed = [str(one) for one in left]
    text = (
        f"node {node}: drained; kubectl usb undrain {node} lets it be used again"
        if not left
        else f"node {node}: not done in {timeout} s: {_named(listed)}; the drain goes on"
    )
    invocation.line(text, {"node": node, "done": not left, "claims": listed})
    return 1 if left else 0


@click.command("undrain")
@common()
@NODE
@pass_invocation
def undrain_command(invocation: Invocation, config: Path | None, node: str) -> None:
    """Let the USB devices and ports of a drained node be used again."""
    from usbdra.cli.kubectl.drains import POOLS, rule_name
    from usbdra.kube.types import DEVICE_TAINT_RULE

    names = contract(invocation)

    async def work(client: KubeClient) -> None:
        for prefix in POOLS:
            await client.delete(DEVICE_TAINT_RULE, rule_name(names.driver, prefix, node))

    ask(config, work)
    invocation.line(f"node {node}: in use again", {"node": node, "done": True})


async def _known(client: KubeClient, node: str) -> None:
    """Raises NotFound for a node that is neither there nor has anything published."""
    from usbdra.errors import NotFound
    from usbdra.kube import errors
    from usbdra.kube.types import NODE as KIND

    try:
        await client.get(KIND, node)
    except errors.ApiNotFound as error:
        raise NotFound(f"there is no node {node}; see kubectl get nodes") from error
    except errors.ApiForbidden:
        return


async def _put(
    client: KubeClient, names: Contract, node: str, prefixes: Sequence[str], effect: str
) -> None:
    """Raises Refused on a server that has no such rules."""
    from usbdra.cli.kubectl.drains import rules
    from usbdra.errors import Refused
    from usbdra.kube import errors
    from usbdra.kube.types import DEVICE_TAINT_RULE

    try:
        for rule in rules(names, node, prefixes, effect):
            await client.apply(DEVICE_TAINT_RULE, rule, manager=MANAGER)
    except errors.ApiNotFound as error:
        raise Refused(
            "this cluster serves no DeviceTaintRule (resource.k8s.io/v1, Kubernetes 1.37); "
            f"kubectl drain {node} ends what pods of the node use"
        ) from error


async def _emptied(
    client: KubeClient,
    driver: str,
    node: str,
    prefixes: Sequence[str],
    what: str,
    deadline: float,
) -> list[Held]:
    """Follow the claims until none has anything there; those left at the deadline. Raises
    ApiError."""
    from contextlib import aclosing

    from usbdra.cli.kubectl.drains import held
    from usbdra.cli.kubectl.waiting import fail
    from usbdra.kube.types import RESOURCE_CLAIM
    from usbdra.kube.watch import Reflector, Synced

    reflector = Reflector(client, RESOURCE_CLAIM, on_error=fail)
    left: list[Held] = []
    told: list[Held] | None = None
    synced = False  # before that the cache may not know them all
    try:
        async with asyncio.timeout_at(deadline), aclosing(reflector.run()) as news:
            async for event in news:
                synced = synced or isinstance(event, Synced)
                if not synced:
                    continue
                left = list(held(reflector.cache.values(), driver, node, prefixes))
                if left != told:
                    _progress(node, what, left)
                    told = left
                if not left:
                    return []
    except TimeoutError:
        pass
    return left


def _progress(node: str, what: str, left: Sequence[Held]) -> None:
    """On standard error, where it is in no program's way."""
    state = f"{len(left)} claims have them: {_named([str(one) for one in left])}"
    click.echo(f"node {node}: {what}: {state if left else 'free'}", err=True)


def _named(listed: Sequence[str]) -> str:
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


COMMANDS = (drain_command, undrain_command)
