# SPDX-License-Identifier: Apache-2.0
"""Words for shell completion that depend on the node: devices and ports.

Completion must never fail or print: a node that cannot be read offers no words.
"""

from __future__ import annotations

from contextlib import suppress

import click

from usbdra.errors import UsbdraError


def complete_local(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names and bus ids of this node's devices."""
    words: list[str] = []
    with suppress(UsbdraError, OSError):
        from usbdra.cli import parts
        from usbdra.config import load

        for offer in parts.snapshot(load()).offers:
            words += [offer.name, offer.device.busid]
    return [word for word in words if word.startswith(incomplete)]


def complete_port(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ports in use and the bus ids of what is on them."""
    words: list[str] = []
    with suppress(UsbdraError, OSError):
        from usbdra.cli import parts
        from usbdra.config import load
        from usbdra.types import PortState

        for row in parts.vhci(load()).table().ports:
            if row.state is not PortState.FREE:
                words += [str(row.port), *([row.local_busid] if row.local_busid else [])]
    return [word for word in words if word.startswith(incomplete)]
