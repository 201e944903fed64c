# SPDX-License-Identifier: Apache-2.0
"""`usbdra slices`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from usbdra.cli import parts
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation, to_yaml, write

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.types import Hub
    from usbdra.vhci.table import HubCount


@click.command("slices")
@common_options(("yaml", "json"))
@click.option("--node", metavar="NAME", help="Node to publish for; default this machine's name.")
@click.option("--visibility", type=click.Choice(("Cluster", "Node")), help="Who may select.")
@click.option("--layout", type=click.Choice(("hub", "ports")), help="How ports are published.")
@pass_invocation
def slices_command(
    invocation: Invocation, node: str | None, visibility: str | None, layout: str | None
) -> None:
    """Print the ResourceSlices this node would publish: what claims can select by."""
    from usbdra.slices.build import Layout, SliceOptions, Visibility, build
    from usbdra.slices.capacity import claimable

    settings = invocation.settings(node=node, visibility=visibility, layout=layout)
    options = SliceOptions(
        node=parts.node_name(settings),
        group=settings.group,
        visibility=Visibility(settings.visibility),
        layout=Layout(settings.layout),
    )
    hubs = _hubs(settings)
    # No claims are known here: whatever sits on a port now is not theirs.
    free = claimable(hubs, settings.max_ports, {hub: count.used for hub, count in hubs.items()})
    manifests = build(parts.snapshot(settings).offers, free, options)
    if invocation.output == "json":
        import json

        write(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}, indent=2) + "\n")
    else:
        write("---\n".join(to_yaml(one) for one in manifests))


def _hubs(settings: Settings) -> dict[Hub, HubCount]:
    """Ports by hub; none, with a word why, where this kernel cannot import."""
    from usbdra.errors import KernelUnsupported

    try:
        return parts.vhci(settings).table().hubs
    except KernelUnsupported as error:
        click.echo(f"usbdra: no ports are published: {error}", err=True)
        return {}
