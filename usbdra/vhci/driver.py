# SPDX-License-Identifier: Apache-2.0
"""Attach and detach, and the proof that they happened.

Owns the writes to `attach` and `detach` of vhci_hcd.0 and what is read back after them. Must not
talk to the network, must not touch a port that a caller did not name or that it did not choose.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from usbdra._native import vhci as kernel
from usbdra.errors import AttachFailed, DetachStuck, KernelUnsupported, UnknownStatusLayout
from usbdra.locks import ProcessLock
from usbdra.types import BusId, Hub, Port, PortId, PortState, Speed
from usbdra.vhci import layout
from usbdra.vhci.select import choose_port, hub_for_code
from usbdra.vhci.table import (
    HubCount,
    KnownPorts,
    RowCodes,
    count_hubs,
    find,
    hub_of,
    port_of,
    root_hub_port,
)
from usbdra.vhci.waiting import Waiter, below

_CODES = RowCodes(kernel.HUB_HIGH, kernel.HUB_SUPER, kernel.SOCKFD_NONE)
# The port was taken between our look and our write: EBUSY since "usbip: vhci_hcd: return EBUSY",
# EINVAL before. EAGAIN: this controller is not ready (vhci_sysfs.c `attach_store`).
_TRY_NEXT = (errno.EBUSY, errno.EAGAIN)


BeforeWrite = Callable[[PortId], Awaitable[None]]
"""Told the port that is about to be written to `attach`."""


class VhciNative(Protocol):
    """What we need of `_native.vhci`; tests put a kernel of their own here."""

    def read_status(self, directory: bytes, count: int, /) -> kernel.StatusTable:
        """All rows of `status` .. `status.<count-1>`."""

    def attach(self, directory: bytes, port: int, sockfd: int, devid: int, speed: int, /) -> None:
        """One write to `attach`."""

    def detach(self, directory: bytes, port: int, /) -> None:
        """One write to `detach`."""


@dataclass(frozen=True, slots=True)
class VhciTable:
    """All ports of the node at one moment, and what they add up to."""

    ports: tuple[Port, ...]
    hubs: dict[Hub, HubCount]


@dataclass(frozen=True, slots=True)
class Placed:
    """A port that took our socket, and where its device will appear (`devpath` without /sys)."""

    port: PortId
    controller: int
    hub: Hub
    busid: BusId
    devpath: str
    speed_code: int


class VhciDriver:
    """The node's vhci_hcd below `root`. One per process; attach is serialised over processes.

    `lock_file` is made when missing; two processes that share it never race for a port.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        native: VhciNative = kernel,
        node: str = "this node",
        lock_file: Path | None = None,
    ) -> None:
        self._root = root
        self._native = native
        self._node = node
        self._lock = ProcessLock(lock_file or root / "run/usbdra/vhci.lock")
        self._stuck: set[PortId] = set()
        self._known = KnownPorts(_CODES)
        self._super_plus_refused = False

    def table(self) -> VhciTable:
        """Read all rows now.

        Raises KernelUnsupported (module not loaded, files not readable) and UnknownStatusLayout.
        """
        ports = self._ports()
        return VhciTable(ports, count_hubs(ports, self._stuck))

    @property
    def stuck(self) -> frozenset[PortId]:
        """Ports whose detach was asked for and did not come through; out of capacity."""
        return frozenset(self._stuck)

    async def attach(
        self,
        sockfd: int,
        devid: int,
        speed_code: int,
        *,
        busy_retry: int = 16,
        reserved: Collection[PortId] = (),
        before: BeforeWrite | None = None,
    ) -> Placed:
        """Give the connected socket to a free port of the right hub. Borrows sockfd.

        A port that someone takes meanwhile costs one of `busy_retry` further tries. `before` is
        awaited with the port right before each write: what it records is true should we be
        killed at the write. The device has not enumerated yet when this returns; `enumerated`
        waits for that. Raises NoFreePort, Refused (speed without a hub), KernelUnsupported,
        AttachFailed.
        """
        hub = hub_for_code(speed_code)
        tried: set[PortId] = set(reserved)
        async with self._lock.held():
            for _ in range(busy_retry + 1):
                ports = self._ports()
                port = choose_port(ports, hub, avoid=tried, stuck=self._stuck, node=self._node)
                placed = self._placed(ports, port, hub, speed_code)
                if before is not None:
                    await before(port.port)
                used_code = self._write(port, sockfd, devid, speed_code)
                if used_code is not None:
                    self._prove(port)
                    return replace(placed, speed_code=used_code)
                tried.add(port.port)
        raise AttachFailed(
            f"{busy_retry + 1} ports were taken by others between choice and attach; try again"
        )

    async def enumerated(
        self,
        placed: Placed,
        waiter: Waiter,
        *,
        timeout: float,
        ended: asyncio.Future[Any] | None = None,
    ) -> None:
        """Wait until the device is in sysfs at the place known before the attach.

        `waiter` was opened before the attach; `ended` is done when the link is (it makes a
        failure known at once, since no event tells of a row that goes back). Raises
        AttachFailed; the port is still taken then and the caller detaches it.
        """
        present = self._root / "sys" / placed.devpath.lstrip("/") / "idVendor"
        found = await waiter.until(
            lambda: present.exists() or None,
            lambda event: event.devpath == placed.devpath,
            timeout=timeout,
            stop=ended,
        )
        if found is None:
            state = self._port(placed.port).state
            cause = (
                "the link ended"
                if ended is not None and ended.done()
                else f"it did not answer within {timeout:g} s"
            )
            raise AttachFailed(
                f"device did not appear on port {placed.port} as {placed.busid}: {cause} "
                f"(port is {state.value})"
            )

    async def detach(self, port: PortId, waiter: Waiter, *, timeout: float = 10.0) -> None:
        """End what is on this port; returns when its row is free and its device is gone.

        A port that is free already is no error. The row itself changes without an event, so it
        is read again at growing intervals until `timeout` (seconds). Raises DetachStuck, after
        which the port counts as broken until the kernel frees it; NotFound; KernelUnsupported.
        """
        ports = self._ports()
        row = find(ports, port)
        if row.state is PortState.FREE:
            self._stuck.discard(port)
            return
        place = self._place(ports, row)
        device = self._root / "sys" / place.devpath.lstrip("/")
        try:
            self._native.detach(os.fsencode(layout.control_directory(self._root)), port)
        except OSError as error:
            # EINVAL: not connected any more. Whether that is so, the row says below.
            if error.errno != errno.EINVAL:
                raise DetachStuck(f"port {port} cannot be detached: {error}") from error

        def gone() -> bool | None:
            free = self._port(port).state is PortState.FREE
            return (free and not device.exists()) or None

        if await waiter.until(gone, below(place.devpath), timeout=timeout, reread=True) is None:
            state = self._port(port).state
            if state is not PortState.FREE:
                self._stuck.add(port)
            raise DetachStuck(
                f"port {port} did not come free within {timeout:g} s (it is {state.value}); "
                "it is out of use until it does"
            )
        self._stuck.discard(port)

    def place(self, port: PortId) -> Placed | None:
        """Where the device of a port in use is; None when the port is free."""
        ports = self._ports()
        row = find(ports, port)
        if row.state is PortState.FREE:
            return None
        return self._placed(ports, row, hub_of(row), row.speed_code)

    def _ports(self) -> tuple[Port, ...]:
        return self._known.of(self._rows())

    def _port(self, number: PortId) -> Port:
        """One port as it is now; the other rows are not looked at. Raises NotFound."""
        rows = self._rows()
        if number < len(rows) and rows[number].port == number:
            return port_of(rows[number], _CODES)
        return find(self._known.of(rows), number)

    def _rows(self) -> kernel.StatusTable:
        directory = layout.control_directory(self._root)
        try:
            rows = self._native.read_status(os.fsencode(directory), layout.status_files(directory))
        except kernel.StatusFormatError as error:
            raise UnknownStatusLayout(error.header) from error
        except OSError as error:
            raise KernelUnsupported(f"vhci status cannot be read: {error}") from error
        if self._stuck:
            self._stuck -= {port.port for port in self._known.of(rows) if _is_free(port)}
        return rows

    def _write(self, port: Port, sockfd: int, devid: int, code: int) -> int | None:
        """One attach write, two for a super-plus device on a kernel that may not know it.

        Returns the speed code the kernel took, None when the port was taken meanwhile.
        """
        super_plus = code == Speed.SUPER_PLUS.code
        first = Speed.SUPER.code if super_plus and self._super_plus_refused else code
        try:
            self._store(port.port, sockfd, devid, first)
        except OSError as error:
            if self._taken(error, port.port):
                return None
            if error.errno != errno.EINVAL or first != Speed.SUPER_PLUS.code:
                raise self._refused(error, port.port, first) from error
        else:
            return first
        try:
            self._store(port.port, sockfd, devid, Speed.SUPER.code)
        except OSError as error:
            if self._taken(error, port.port):
                return None
            raise self._refused(error, port.port, Speed.SUPER.code) from error
        self._super_plus_refused = True
        return Speed.SUPER.code

    def _store(self, port: PortId, sockfd: int, devid: int, code: int) -> None:
        directory = os.fsencode(layout.control_directory(self._root))
        self._native.attach(directory, port, sockfd, devid, code)

    def _taken(self, error: OSError, port: PortId) -> bool:
        if error.errno in _TRY_NEXT:
            return True
        taken = self._port(port).state is not PortState.FREE
        return error.errno == errno.EINVAL and taken

    def _refused(self, error: OSError, port: PortId, code: int) -> AttachFailed:
        return AttachFailed(f"the kernel refused port {port} with speed code {code}: {error}")

    def _prove(self, port: Port) -> None:
        """Look at the row after the write: its success alone proves nothing."""
        if self._port(port.port).state is PortState.FREE:
            raise AttachFailed(
                f"port {port.port} is free again right after its attach: the link ended at once"
            )

    def _placed(self, ports: tuple[Port, ...], port: Port, hub: Hub, code: int) -> Placed:
        place = self._place(ports, port)
        return Placed(port.port, port.controller, hub, place.busid, place.devpath, code)

    def _place(self, ports: tuple[Port, ...], port: Port) -> layout.Place:
        return layout.place_of(
            self._root, port.controller, hub_of(port), root_hub_port(ports, port)
        )


def _is_free(port: Port) -> bool:
    return port.state is PortState.FREE
