# SPDX-License-Identifier: Apache-2.0
"""`usbdra ports`."""

from __future__ import annotations

import click

from usbdra.cli import parts, views
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.types import Hub, PortState


@click.command("ports")
@common_options()
@click.option("--used", is_flag=True, help="Only ports that are not free.")
@pass_invocation
def ports_command(invocation: Invocation, used: bool) -> None:
    """Show the vhci ports that imported devices sit on, and how many are free on each hub."""
    table = parts.vhci(invocation.settings()).table()
    rows = [row for row in table.ports if not used or row.state is not PortState.FREE]
    invocation.show(
        views.ports(rows, table.hubs),
        views.PORT_HEADERS,
        lambda wide: (views.port_row(row, wide) for row in rows),
        views.PORT_WIDE,
    )
    if not invocation.machine:
        for hub in Hub:
            count = table.hubs.get(hub)
            if count is not None:
                invocation.line(f"{hub.value}-speed hub: {count.free} of {count.capacity} free")
