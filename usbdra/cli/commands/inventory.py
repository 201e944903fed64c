# SPDX-License-Identifier: Apache-2.0
"""`usbdra list`."""

from __future__ import annotations

import click

from usbdra.cli import parts, views
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation


@click.command("list")
@common_options()
@click.option("--exportable", is_flag=True, help="Only devices that may be used from other nodes.")
@pass_invocation
def list_command(invocation: Invocation, exportable: bool) -> None:
    """List the USB devices of this node and what may be done with them.

    Hubs and devices imported from other machines are not listed. `-o wide` says why a device is
    not exportable.
    """
    found = parts.snapshot(invocation.settings())
    offers = [offer for offer in found.offers if offer.exportable or not exportable]
    invocation.show(
        [views.device(offer) for offer in offers],
        views.DEVICE_HEADERS,
        lambda wide: (views.device_row(offer, wide) for offer in offers),
        views.DEVICE_WIDE,
    )
    for busid, reason in sorted(found.skipped.items()):
        click.echo(f"usbdra: device {busid} could not be read: {reason}", err=True)
