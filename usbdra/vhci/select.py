# SPDX-License-Identifier: Apache-2.0
"""Which port a device goes to.

Owns the choice of a hub by speed and of a free port on it. Pure: the kernel's rows come in as
ports, nothing is read or attached here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from usbdra.errors import NoFreePort, Refused
from usbdra.types import Hub, Port, PortId, PortState, Speed
from usbdra.vhci.table import count_hubs, hub_of


def hub_for_code(speed_code: int) -> Hub:
    """The hub that the kernel will use for this `enum usb_device_speed`, whatever port is named.

    Raises Refused for a speed that vhci does not carry (unknown, wireless).
    """
    speed = Speed.from_code(speed_code)
    if speed is Speed.UNKNOWN:
        raise Refused(f"a device of speed code {speed_code} cannot be attached: no hub carries it")
    return Hub.for_speed(speed)


def choose_port(
    ports: Sequence[Port],
    hub: Hub,
    *,
    avoid: Collection[PortId] = (),
    stuck: Collection[PortId] = (),
    node: str = "this node",
) -> Port:
    """The lowest free port of `hub` that is not in `avoid` (reserved by others, or tried).

    Controllers on which nothing is attaching come first: the kernel enumerates one device of a
    controller at a time, so a peer that does not answer holds up its neighbours for a minute
    (docs/kernel-facts.md).

    Raises NoFreePort, which counts what the rows say; a hub is never swapped for the other.
    """
    occupied = {port.controller for port in ports if port.state is PortState.ATTACHING}
    second_best: Port | None = None
    for port in ports:
        if port.state is PortState.FREE and hub_of(port) is hub and port.port not in avoid:
            if port.controller not in occupied:
                return port
            second_best = second_best or port
    if second_best is not None:
        return second_best
    count = count_hubs(ports, stuck)[hub]
    spared = sum(
        1
        for port in ports
        if port.state is PortState.FREE and hub_of(port) is hub and port.port in avoid
    )
    raise NoFreePort(hub.value, count.used + spared, count.capacity, node)
