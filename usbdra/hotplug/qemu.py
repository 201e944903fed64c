# SPDX-License-Identifier: Apache-2.0
"""USB devices of one QEMU: plug in by descriptor, take out, see what is there.

Owns the conversation, and no state: QEMU itself remembers what we plugged in. A device has our
id, and its descriptor's set in QEMU says in its `opaque` which device of the node it is, so that
after any crash a look tells what is to be done. The machine's container needs no device node, no
cgroup rule and no privilege: the descriptor comes over the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from usbdra.errors import PlugFailed, UsbdraError
from usbdra.hotplug.qmp import Event, QmpClient, QmpError

PREFIX = "usbdra-"
"""Of our devices' ids and descriptor sets."""
MAX_PORTS = 15
"""Ports of QEMU's xHCI controllers (hw/usb/hcd-xhci.h)."""
DELETE_TIME = 5.0
"""Seconds until QEMU must have taken a device out; it waits for no guest with USB."""
_CONTROLLERS = ("child<qemu-xhci>", "child<nec-usb-xhci>")
_PLACES = ("/machine/peripheral", "/machine/peripheral-anon")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a device is in the machine: a bus, which is 0 for the one we use, and a port."""

    bus: int
    port: int


@dataclass(frozen=True, slots=True)
class Plugged:
    """A device of ours in a machine. tag: which device of the node it is, see `plug`."""

    tag: str
    address: Address


class Qemu:
    """One machine, by a client of its QMP socket."""

    def __init__(self, client: QmpClient) -> None:
        self._client = client

    async def plugged(self, name: str) -> Plugged | None:
        """What is plugged in under this name, if anything is."""
        if not await self._has(name):
            return None
        tags = [tag for _, tag in await self._sets(name)]
        port = await self._client.execute("qom-get", path=f"{_PLACES[0]}/{name}", property="port")
        number = int(port) if isinstance(port, str) and port.isdigit() else 0
        return Plugged(tags[0] if tags else "", Address(0, number))

    async def plug(self, name: str, tag: str, fd: int, bus: str = "") -> Address:
        """Plug in the device behind `fd`, which is borrowed.

        name: starts with PREFIX. tag: any text that tells this device's life from every other.
        bus: empty for the machine's first xHCI controller. What was there under the name goes
        first. Raises PlugFailed, and nothing is plugged in then; MachineGone.
        """
        await self.unplug(name)
        bus = bus or await self._bus()
        made = await self._client.execute("add-fd", fd=fd, opaque=f"{name} {tag}")
        number = made.get("fdset-id") if isinstance(made, dict) else None
        if not isinstance(number, int):
            raise PlugFailed("QEMU: add-fd: no number of a set in the answer")
        try:
            return await self._add(name, number, bus)
        except UsbdraError:
            with suppress(UsbdraError):  # a connection that is over takes it along
                await self._client.execute("remove-fd", **{"fdset-id": number})
            raise

    async def unplug(self, name: str) -> bool:
        """Take it out and forget its descriptors; whether it was there.

        Raises PlugFailed when QEMU does not let go in time; MachineGone.
        """
        there = await self._has(name)
        if there:
            await self._delete(name)
        for number, _ in await self._sets(name):
            await self._client.execute("remove-fd", **{"fdset-id": number})
        return there

    async def _add(self, name: str, number: int, bus: str) -> Address:
        """At the first free port: an own port each, or QEMU would put a hub between."""
        refused: QmpError | None = None
        for port in range(1, MAX_PORTS + 1):
            try:
                await self._client.execute(
                    "device_add", driver="usb-host", id=name, bus=bus, port=str(port),
                    hostdevice=f"/dev/fdset/{number}",
                )  # fmt: skip
            except QmpError as error:
                if "not found (in use?)" not in error.text:  # hw/usb/bus.c usb_claim_port
                    raise
                refused = error
            else:
                return Address(0, port)
        raise PlugFailed(f"bus {bus} of the machine has no free USB port") from refused

    async def _delete(self, name: str) -> None:
        """device_del answers before the device is gone; the event says when it is."""
        gone = asyncio.Event()

        def listener(event: Event) -> None:
            data = event.get("data")
            ours = isinstance(data, dict) and data.get("device") == name
            if ours and event.get("event") == "DEVICE_DELETED":
                gone.set()

        end = self._client.listen(listener)
        try:
            await self._client.execute("device_del", id=name)
            async with asyncio.timeout(DELETE_TIME):
                await gone.wait()
        except TimeoutError:
            if await self._has(name):
                raise PlugFailed(
                    f"QEMU did not let go of {name} within {DELETE_TIME:g} s"
                ) from None
        except QmpError as error:
            if error.kind != "DeviceNotFound":
                raise
        finally:
            end()

    async def _has(self, name: str) -> bool:
        return any(entry.get("name") == name for entry in await self._list(_PLACES[0]))

    async def _bus(self) -> str:
        """The USB bus of the machine's first xHCI controller."""
        for place in _PLACES:
            for entry in await self._list(place):
                if entry.get("type") in _CONTROLLERS:
                    for inner in await self._list(f"{place}/{entry.get('name')}"):
                        if inner.get("type") == "child<usb-bus>":
                            return str(inner.get("name"))
        raise PlugFailed(
            "the machine has no xHCI controller; start QEMU with `-device qemu-xhci,id=xhci`"
        )

    async def _list(self, path: str) -> list[Mapping[str, Any]]:
        found = await self._client.execute("qom-list", path=path)
        return [entry for entry in found or () if isinstance(entry, dict)]

    async def _sets(self, name: str) -> list[tuple[int, str]]:
        """(number, tag) of the descriptor sets that were made for this name."""
        found = []
        for entry in await self._client.execute("query-fdsets") or ():
            for descriptor in entry.get("fds") or ():
                owner, _, tag = str(descriptor.get("opaque", "")).partition(" ")
                if owner == name:
                    found.append((int(entry["fdset-id"]), tag))
        return found
