# SPDX-License-Identifier: Apache-2.0
"""`usbdra remote`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from usbdra.cli import parts, views
from usbdra.cli.group import TCP_PORT, common_options
from usbdra.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.types import RemoteDevice


async def devices_of(
    settings: Settings, host: str, port: int | None, plain: bool
) -> Sequence[RemoteDevice]:
    """What a host exports, by inventory, or by devlist on a plain link."""
    from usbdra.importer.dial import dial

    link = await dial(
        host,
        port or (settings.plain_port if plain else settings.port),
        identity=None if plain else parts.identity(settings),
        plain=plain,
        encryption=parts.encryption(settings),
    )
    async with link:
        return await (link.devlist() if plain else link.inventory())


@click.command("remote")
@common_options()
@click.argument("host")
@click.option("--port", type=TCP_PORT, help="TCP port, 3241; with --plain 3240.")
@click.option("--plain", is_flag=True, help="No encryption: for stock peers.")
@pass_invocation
def remote_command(invocation: Invocation, host: str, port: int | None, plain: bool) -> None:
    """List what HOST exports. Stock peers tell no names and no serials."""
    settings = invocation.live_settings()
    found = asyncio.run(devices_of(settings, host, port, plain))
    invocation.show(
        [views.remote(one) for one in found],
        views.REMOTE_HEADERS,
        lambda wide: (views.remote_row(one, wide) for one in found),
        views.REMOTE_WIDE,
    )
