# SPDX-License-Identifier: Apache-2.0
"""The commands of `kubectl usb`; kubectl finds the program by its name, `kubectl-usb`.

Owns arguments and output. What is shown is made by views.py and explain.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from usbdra import __version__
from usbdra.cli.group import HELP, HelpingGroup
from usbdra.cli.invocation import FORMATS, Invocation, pass_invocation
from usbdra.cli.kubectl.session import ask

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient
    from usbdra.kube.custom import Contract

F = TypeVar("F", bound=Callable[..., Any])
WAIT_SECONDS = 30


def main() -> NoReturn:
    """Run the plugin and end the process."""
    from usbdra.cli.main import run

    sys.exit(run(None, program, "kubectl usb"))


@click.group(cls=HelpingGroup, name="kubectl usb", context_settings=HELP)
@click.version_option(__version__, "-V", "--version", message="kubectl-usb %(version)s")
def program() -> None:
    """USB devices of the cluster: who has them, who may, and why not."""


def common(function: F) -> F:
    """-o, -v and --kubeconfig; the last is the command's own argument `config`."""

    def remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value:
            ctx.ensure_object(Invocation).given[str(param.name)] = value

    shared: dict[str, Any] = {"expose_value": False, "callback": remember}
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Say more.", **shared),
        click.option("-o", "--output", type=click.Choice(FORMATS), **shared),
        click.option(
            "--kubeconfig", "config", type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE", help="Default: as kubectl.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


NAMESPACE = click.option("-n", "--namespace", metavar="NAMESPACE")


@program.command("devices")
@common
@NAMESPACE
@pass_invocation
def devices_command(invocation: Invocation, config: Path | None, namespace: str | None) -> None:
    """All devices of the cluster, or with -n those that a namespace may use."""
    from usbdra.cli.kubectl import views

    contract = _contract(invocation)
    kind = contract.device if namespace else contract.node_device
    items = ask(config, lambda client: client.list(kind, namespace))["items"]
    invocation.show(
        items,
        views.DEVICE_HEADERS,
        lambda wide: (views.device_row(item, wide) for item in items),
        views.DEVICE_WIDE,
    )


@program.command("assign")
@common
@click.argument("device")
@click.option("-n", "--namespace", required=True, metavar="NAMESPACE")
@click.option("--force", is_flag=True, help="Delete the pods that have it elsewhere.")
@pass_invocation
def assign_command(
    invocation: Invocation, config: Path | None, device: str, namespace: str, force: bool
) -> int:
    """Let a namespace use a device, and wait until it can (status 1: not in 30 s)."""
    return _assign(invocation, config, device, namespace, force)


@program.command("unassign")
@common
@click.argument("device")
@click.option("--force", is_flag=True, help="Delete the pods that use it.")
@pass_invocation
def unassign_command(invocation: Invocation, config: Path | None, device: str, force: bool) -> int:
    """Take a device from its namespace, and wait until it is given back (status 1: not in 30 s)."""
    return _assign(invocation, config, device, "", force)


@program.command("claims")
@common
@NAMESPACE
@pass_invocation
def claims_command(invocation: Invocation, config: Path | None, namespace: str | None) -> None:
    """Claims that have a USB device, with what became of it."""
    from usbdra.cli.kubectl import views
    from usbdra.controller.uses import uses
    from usbdra.kube.types import RESOURCE_CLAIM

    driver = _contract(invocation).driver
    items = ask(config, lambda client: client.list(RESOURCE_CLAIM, namespace))["items"]
    found = [use for item in items for use in uses(item, driver)]
    invocation.show(
        [views.claim_data(use) for use in found],
        views.CLAIM_HEADERS,
        lambda wide: (views.claim_row(use, wide) for use in found),
        views.CLAIM_WIDE,
    )


@program.command("ports")
@common
@pass_invocation
def ports_command(invocation: Invocation, config: Path | None) -> None:
    """Ports of every node and hub: how many claims have one, which, and how many are free."""
    from usbdra.cli.kubectl import facts, views

    contract = _contract(invocation)
    found = ask(config, lambda client: facts.hubs(client, contract.driver))
    invocation.show(
        [views.port_data(hub) for hub in found],
        views.PORT_HEADERS,
        lambda wide: (views.port_row(hub) for hub in found),
    )


@program.command("explain")
@common
@NAMESPACE
@click.argument("target", metavar="pod/NAME|claim/NAME")
@pass_invocation
def explain_command(
    invocation: Invocation, config: Path | None, namespace: str | None, target: str
) -> None:
    """Say why a pod or a claim has not got its device. A bare name is a pod's."""
    from usbdra.cli.kubectl import facts

    contract, space = _contract(invocation), namespace or "default"

    async def work(client: KubeClient) -> str:
        return await facts.explain(client, contract, space, target)

    text = ask(config, work)
    invocation.line(text, {"explanation": text})


def _assign(
    invocation: Invocation, config: Path | None, device: str, namespace: str, force: bool
) -> int:
    from usbdra.cli.kubectl import facts

    contract = _contract(invocation)
    patch = {"spec": {"assignedNamespace": namespace, "force": force}}

    async def work(client: KubeClient) -> tuple[bool, str]:
        await client.merge(contract.node_device, device, patch)
        return await facts.assigned(client, contract, device, namespace, WAIT_SECONDS)

    done, message = ask(config, work)
    text = f"{device}: {message}" if done else f"{device}: not done yet: {message}"
    invocation.line(text, {"device": device, "done": done, "message": message})
    return 0 if done else 1


def _contract(invocation: Invocation) -> Contract:
    from usbdra.kube.custom import Contract

    return Contract(invocation.settings().group)
