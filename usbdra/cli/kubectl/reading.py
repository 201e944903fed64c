# SPDX-License-Identifier: Apache-2.0
"""Commands of `kubectl usb` that only read.

Owns arguments and output. What is shown is made by views.py and explain.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import LISTING, NAMESPACE, WATCH, common, contract
from usbdra.cli.kubectl.session import ask
from usbdra.cli.kubectl.session import namespace as meant

if TYPE_CHECKING:
    from usbdra.cli.kubectl.lists import Listing
    from usbdra.kube.client import KubeClient


@click.command("devices")
@LISTING
@NAMESPACE
@WATCH
@pass_invocation
def devices_command(
    invocation: Invocation, config: Path | None, namespace: str | None, watch: bool
) -> None:
    """All devices of the cluster, or with -n those that a namespace may use."""
    from usbdra.cli.kubectl import lists

    names = contract(invocation)
    _list(invocation, config, lists.devices(names, namespace), watch)


@click.command("claims")
@LISTING
@NAMESPACE
@WATCH
@pass_invocation
def claims_command(
    invocation: Invocation, config: Path | None, namespace: str | None, watch: bool
) -> None:
    """Claims that have a USB device, with what became of it."""
    from usbdra.cli.kubectl import lists

    _list(invocation, config, lists.claims(contract(invocation), namespace), watch)


@click.command("ports")
@LISTING
@pass_invocation
def ports_command(invocation: Invocation, config: Path | None) -> None:
    """Ports of every node and hub: how many claims have one, which, and how many are free."""
    from usbdra.cli.kubectl import facts, views

    driver = contract(invocation).driver
    found = ask(config, lambda client: facts.hubs(client, driver))
    invocation.show(
        [views.port_data(hub) for hub in found],
        views.PORT_HEADERS,
        lambda wide: (views.port_row(hub) for hub in found),
        names=lambda: [f"{hub.node}/{hub.hub}" for hub in found],
    )


@click.command("explain")
@common()
@NAMESPACE
@click.argument("target", metavar="pod/NAME|claim/NAME", shell_complete=words.targets)
@pass_invocation
def explain_command(
    invocation: Invocation, config: Path | None, namespace: str | None, target: str
) -> None:
    """Say why a pod or a claim has not got its device. A bare name is a pod's."""
    from usbdra.cli.kubectl import facts

    names, space = contract(invocation), meant(config, namespace)

    async def work(client: KubeClient) -> str:
        return await facts.explain(client, names, space, target)

    text = ask(config, work)
    invocation.line(text, {"explanation": text})


def _list(invocation: Invocation, config: Path | None, listing: Listing, watch: bool) -> None:
    from usbdra.cli.kubectl import lists

    show = lists.follow if watch else lists.once
    ask(config, lambda client: show(client, listing, invocation))


@click.command("top")
@LISTING
@NAMESPACE
@pass_invocation
def top_command(invocation: Invocation, config: Path | None, namespace: str | None) -> None:
    """Links between nodes: throughput, latency and what was sent again, the busiest first.

    As the node that uses the device told last; AGE says when.
    """
    from datetime import UTC, datetime

    from usbdra.cli.kubectl import links
    from usbdra.controller.links import read
    from usbdra.kube.types import RESOURCE_CLAIM

    driver = contract(invocation).driver
    claims = ask(config, lambda client: client.list(RESOURCE_CLAIM, namespace))["items"]
    found = read(claims, driver)
    now = datetime.now(UTC)
    invocation.show(
        [link.data for link in found],
        links.HEADERS,
        lambda wide: (links.row(link, now, wide) for link in found),
        links.WIDE,
        lambda: [f"resourceclaim.{RESOURCE_CLAIM.group}/{link.data['claim']}" for link in found],
    )


COMMANDS = (devices_command, claims_command, ports_command, top_command, explain_command)
