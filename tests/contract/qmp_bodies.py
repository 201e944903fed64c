# SPDX-License-Identifier: Apache-2.0
"""What a QEMU does on its QMP socket that hotplug/ stands on, on the fake and on a real one.

Each body is given the socket's path, of a machine with one xHCI controller `xhci` and no device.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import patience
from usbdra.errors import PlugFailed
from usbdra.hotplug.qemu import Qemu
from usbdra.hotplug.qmp import Event, QmpClient, QmpError

KEYBOARD: dict[str, Any] = {"driver": "usb-kbd", "bus": "xhci.0"}


@asynccontextmanager
async def client(path: Path, timeout: float = 10.0) -> AsyncIterator[QmpClient]:
    """A connection past capabilities."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    made = await QmpClient.open(sock, timeout)
    try:
        yield made
    finally:
        await made.close()


async def refusal(request: Awaitable[Any]) -> QmpError:
    """The error that a command ends with."""
    try:
        await request
    except QmpError as error:
        return error
    raise AssertionError("it was not refused")


async def the_first_controllers_bus_is_found(path: Path) -> None:
    """By the objects of the machine, whatever the controller is called."""
    async with client(path) as made:
        assert await Qemu(made)._bus() == "xhci.0"
        assert await Qemu(made).plugged("usbdra-one") is None


async def a_device_has_the_port_it_asked_for_and_no_other_gets_it(path: Path) -> None:
    """The words for a port that is taken and for one that is not there are the same."""
    async with client(path) as made:
        await made.execute("device_add", **KEYBOARD, id="usbdra-one", port="2")
        port = await made.execute("qom-get", path="/machine/peripheral/usbdra-one", property="port")
        assert port == "2"
        for number in ("2", "77"):
            again = made.execute("device_add", **KEYBOARD, id="usbdra-two", port=number)
            assert "not found (in use?)" in (await refusal(again)).text
        found = await Qemu(made).plugged("usbdra-one")
        assert found is not None
        assert found.address.port == 2
        await made.execute("device_del", id="usbdra-one")


async def a_device_that_is_taken_out_is_told_of(path: Path) -> None:
    """DEVICE_DELETED names it; the machine is stopped and no guest is asked."""
    async with client(path) as made:
        events: asyncio.Queue[Event] = asyncio.Queue()
        made.listen(events.put_nowait)
        await made.execute("device_add", **KEYBOARD, id="usbdra-one", port="1")
        assert await Qemu(made).unplug("usbdra-one")
        names = set()
        async with patience():
            while "usbdra-one" not in names:
                event = await events.get()
                if event["event"] == "DEVICE_DELETED":
                    names.add(event["data"].get("device"))
        assert (await refusal(made.execute("device_del", id="usbdra-one"))).kind == "DeviceNotFound"


async def a_descriptor_keeps_what_was_said_of_it(path: Path) -> None:
    """`opaque` comes back in query-fdsets, in a connection of later too while one is open."""
    async with client(path) as made:
        null = os.open("/dev/null", os.O_RDWR)
        try:
            answer = await made.execute("add-fd", fd=null, opaque="usbdra-one c 1 2")
        finally:
            os.close(null)
        number = answer["fdset-id"]
        assert await Qemu(made)._sets("usbdra-one") == [(number, "c 1 2")]
        await made.execute("remove-fd", **{"fdset-id": number})
        assert await Qemu(made)._sets("usbdra-one") == []
        assert "not found" in (await refusal(made.execute("remove-fd", **{"fdset-id": 4711}))).text
        assert (await refusal(made.execute("add-fd"))).kind == "GenericError"


async def what_is_no_usb_device_is_refused_and_leaves_nothing(path: Path) -> None:
    """The fake is told so for this file."""
    async with client(path) as made:
        null = os.open("/dev/null", os.O_RDWR)
        try:
            with pytest.raises(PlugFailed, match="device_add"):
                await Qemu(made).plug("usbdra-one", "c 1 2", null)
        finally:
            os.close(null)
        # QEMU 7.2 keeps its own copy of a descriptor that was no USB device, and with it the set.
        assert await Qemu(made).plugged("usbdra-one") is None
        assert "not found" in (await refusal(made.execute("device_del", id="usbdra-one"))).text


async def one_client_at_a_time(path: Path) -> None:
    """A second one waits for its greeting until the first has gone."""
    async with client(path):
        with pytest.raises(PlugFailed, match="another client"):
            async with client(path, 0.3):
                raise AssertionError("a second client was greeted")
    async with client(path) as made:
        assert await Qemu(made).plugged("usbdra-one") is None


Body = Callable[[Path], Awaitable[None]]
BODIES: tuple[Body, ...] = (
    the_first_controllers_bus_is_found,
    a_device_has_the_port_it_asked_for_and_no_other_gets_it,
    a_device_that_is_taken_out_is_told_of,
    a_descriptor_keeps_what_was_said_of_it,
    what_is_no_usb_device_is_refused_and_leaves_nothing,
    one_client_at_a_time,
)
