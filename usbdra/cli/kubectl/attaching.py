# SPDX-License-Identifier: Apache-2.0
"""Commands of `kubectl usb` that plug devices into what runs: USBAttachments made and deleted.

Owns arguments and output. The controller and the node's agent do the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import DEVICE, NAMESPACE, WAIT_SECONDS, common, contract
from usbdra.cli.kubectl.session import ask
from usbdra.cli.kubectl.session import namespace as meant
from usbdra.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient
    from usbdra.kube.custom import Contract
    from usbdra.kube.types import Object


@click.command("attach")
@common()
@NAMESPACE
@DEVICE
@click.option("--vm", metavar="NAME", help="The virtual machine.", shell_complete=words.machines)
@click.option("--pod", metavar="NAME", help="The running pod.", shell_complete=words.pods)
@click.option("-c", "--container", metavar="NAME", help="Of the pod; default: its first.")
@pass_invocation
def attach_command(
    invocation: Invocation,
    config: Path | None,
    namespace: str | None,
    device: str,
    vm: str | None,
    pod: str | None,
    container: str | None,
) -> int:
    """Plug a device into a running virtual machine or pod (status 1: not in 30 s)."""
    from usbdra.cli.kubectl import waiting
    from usbdra.kube.errors import ApiConflict

    target = _target(vm, pod, container)
    names, space = contract(invocation), meant(config, namespace)

    body: Object = {
        "apiVersion": names.attachment.api_version,
        "kind": names.attachment.kind,
        "metadata": {"name": device},
        "spec": {"device": device, **target},
    }

    async def work(client: KubeClient) -> tuple[bool, str]:
        try:
            await client.create(names.attachment, body, space)
        except ApiConflict:
            stored = await client.get(names.attachment, device, space)
            if stored["spec"] != body["spec"]:
                raise ConfigError(
                    f"USBAttachment {space}/{device} plugs it into {_shown(stored['spec'])}; "
                    f"kubectl usb detach {device} -n {space} first"
                ) from None
        return await waiting.attached(client, names, device, space, WAIT_SECONDS)

    return waiting.tell(invocation, device, *ask(config, work))


@click.command("detach")
@common()
@NAMESPACE
@click.argument("device", shell_complete=words.attached_devices)
@pass_invocation
def detach_command(
    invocation: Invocation, config: Path | None, namespace: str | None, device: str
) -> int:
    """Unplug a device from what it was attached to (status 1: not in 30 s)."""
    from usbdra.cli.kubectl import waiting

    names, space = contract(invocation), meant(config, namespace)

    async def work(client: KubeClient) -> tuple[bool, str]:
        item = await _attachment(client, names, device, space)
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        await client.delete(names.attachment, name, space, uid=uid)
        return await waiting.gone(client, names, name, space, WAIT_SECONDS)

    return waiting.tell(invocation, device, *ask(config, work))


async def _attachment(client: KubeClient, names: Contract, device: str, space: str) -> Object:
    """The USBAttachment about a device.

    Raises NotFound, and ConfigError for one that would come back.
    """
    items = (await client.list(names.attachment, space))["items"]
    found = [item for item in items if item["spec"]["device"] == device]
    if not found:
        raise NotFound(f"no USBAttachment in namespace {space} is about device {device}")
    item: Object = next((i for i in found if not i["metadata"].get("ownerReferences")), found[0])
    for owner in item["metadata"].get("ownerReferences") or ():
        raise ConfigError(
            f"{device} is in the list of {owner['kind']} {space}/{owner['name']}; take it out of "
            "its spec.usbDevices, and it is detached"
        )
    return item


def _target(vm: str | None, pod: str | None, container: str | None) -> dict[str, Any]:
    if (vm is None) == (pod is None):
        raise ConfigError("name either --vm or --pod")
    if container is not None and pod is None:
        raise ConfigError("--container is for --pod")
    if vm is not None:
        return {"virtualMachine": {"name": vm}}
    return {"pod": {"name": pod, **({"container": container} if container else {})}}


def _shown(spec: Mapping[str, Any]) -> str:
    if "virtualMachine" in spec:
        return f"virtual machine {spec['virtualMachine']['name']}"
    return f"pod {spec['pod']['name']}"


COMMANDS = (attach_command, detach_command)
