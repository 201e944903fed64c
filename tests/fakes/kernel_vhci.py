# SPDX-License-Identifier: Apache-2.0
"""vhci_hcd as vhci_sysfs.c and vhci_hcd.c have it: rows, attach, detach, enumeration."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.kernel_socket import KernelSocket
from tests.fakes.sysfs import STORAGE, FakeDevice, Interface, SysTree
from tests.fakes.sysfs_vhci import S1_HEADER
from tests.fakes.uevents import FakeUevents
from usbdra._native import vhci as native

FREE, ATTACHING, USED, ERROR = 4, 5, 6, 7
NO_SOCKET = 0xFFFFFFFF  # -1 printed with %06u
_SPEED_TEXT = {1: "1.5", 2: "12", 3: "480", 5: "5000", 6: "10000"}

Enumeration = Literal["works", "silent", "error", "drop"]


@dataclass(frozen=True)
class Remote:
    """How an attached device looks once it enumerates; `children` are (subsystem, name,
    interface), made after the drivers have bound."""

    vendor: str = "0781"
    product: str = "5581"
    serial: bytes | None = None
    interfaces: tuple[Interface, ...] = (STORAGE,)
    children: tuple[tuple[str, str, int], ...] = (("block", "sda", 0),)


@dataclass
class Row:
    """One `struct vhci_device`."""

    port: int
    is_super: bool
    rhport: int
    controller: int
    state: int = FREE
    speed: int = 0
    devid: int = 0
    sockfd: int = 0
    busid: str = "0-0"
    socket: KernelSocket | None = None
    device: FakeDevice | None = None
    remote: Remote = Remote()
    stuck: bool = False
    timers: list[asyncio.Handle] = field(default_factory=list)

    def text(self) -> str:
        hub = "ss" if self.is_super else "hs"
        if self.state != USED:  # only used rows show anything
            return f"{hub}  {self.port:04d} {self.state:03d} 000 00000000 000000 0-0\n"
        return (
            f"{hub}  {self.port:04d} 006 {self.speed:03d} {self.devid:08x} "
            f"{self.sockfd:06d} {self.busid}\n"
        )


class FakeVhci:
    """Settable behaviour: `busy_errno` for a taken port (EBUSY, older kernels EINVAL),
    `knows_super_plus`, `enumeration`, `remote` (or one by devid in `remotes`), `enumeration_delay`
    and `detach_delay` in seconds, `before_attach` hooks
    (called once each, at the next attach writes), `stick(port)`."""

    def __init__(
        self, tree: SysTree, events: FakeUevents, controllers: int, high: int, super_: int
    ) -> None:
        assert high == super_, "both hubs of a controller have VHCI_HC_PORTS ports"
        self._tree = tree
        self._events = events
        self.files = tree.vhci(controllers, high=high, super_=super_, first_bus=10)
        self.hc_ports = high
        self.rows = [
            Row(port, port % (2 * high) >= high, port % high, port // (2 * high))
            for port in range(controllers * 2 * high)
        ]
        self.remote = Remote()
        self.remotes: dict[int, Remote] = {}
        self.enumeration: Enumeration = "works"
        self.enumeration_delay = 0.0
        self.busy_errno = errno.EBUSY
        self.knows_super_plus = True
        self.detach_delay = 0.0
        self.before_attach: list[Callable[[], None]] = []
        self.attach_writes: list[tuple[int, int, int]] = []
        """(port, devid, speed) of every write, refused ones included."""

    @property
    def sockets(self) -> int:
        return sum(row.socket is not None for row in self.rows)

    # What _native.vhci offers.

    def read_status(self, directory: bytes, count: int, /) -> native.StatusTable:
        return native.read_status(directory, count)

    def attach(self, directory: bytes, port: int, sockfd: int, devid: int, speed: int, /) -> None:
        assert directory == bytes(self.files.path), "attach is a file of number 0"
        self.attach_writes.append((port, devid, speed))
        if self.before_attach:
            self.before_attach.pop(0)()
        speeds = (1, 2, 3, 5, 6) if self.knows_super_plus else (1, 2, 3, 5)
        if speed not in speeds or not 0 <= port < len(self.rows):
            raise OSError(errno.EINVAL, "attach")
        row = self._target(port, speed)
        if row.state != FREE:
            raise OSError(self.busy_errno, "attach")
        row.socket = KernelSocket(sockfd, lambda: self._down(row))
        row.state, row.speed, row.devid, row.sockfd = ATTACHING, speed, devid, sockfd
        self._show(row)
        self._after(self.enumeration_delay, row, self._enumerate)

    def detach(self, directory: bytes, port: int, /) -> None:
        assert directory == bytes(self.files.path), "detach is a file of number 0"
        if not 0 <= port < len(self.rows) or self.rows[port].state == FREE:
            raise OSError(errno.EINVAL, "detach")
        self._soon(self.rows[port], self._down)

    # What happens to a node.

    def take(self, port: int, devid: int = 0x00090009) -> None:
        """A foreign tool attaches something here, at this very moment."""
        row = self.rows[port]
        row.state, row.speed, row.devid, row.sockfd = USED, 3 if not row.is_super else 5, devid, 3
        row.busid = "9-9"
        self._show(row)

    def stick(self, port: int) -> None:
        """From now on this row never goes back to 004 by itself (R08)."""
        self.rows[port].stuck = True

    def unstick(self, port: int) -> None:
        row = self.rows[port]
        row.stuck = False
        self._reset(row)

    def lose_link(self, port: int) -> None:
        """The connection breaks: a reset, a dead peer's time-out."""
        self._down(self.rows[port])

    def close(self) -> None:
        for row in self.rows:
            for timer in row.timers:
                timer.cancel()
            if row.socket is not None:
                row.socket.shutdown()

    # The inside.

    def _target(self, port: int, speed: int) -> Row:
        """attach_store: the hub by speed, the port modulo the hub's size."""
        first = port // (2 * self.hc_ports) * 2 * self.hc_ports
        return self.rows[first + (self.hc_ports if speed >= 5 else 0) + port % self.hc_ports]

    def _enumerate(self, row: Row) -> None:
        if row.state != ATTACHING or self.enumeration == "silent":
            return
        if self.enumeration == "drop":
            self._down(row)
        elif self.enumeration == "error":  # VDEV_EVENT_ERROR_MALLOC: shutdown, then unusable
            self._shut(row)
            row.state = ERROR
            self._show(row)
        else:
            self._appear(row)

    def _appear(self, row: Row) -> None:
        hub = self.files.hubs[row.controller][row.is_super]
        remote = row.remote = self.remotes.get(row.devid, self.remote)
        device = row.device = hub.plug(
            row.rhport + 1,
            vendor=remote.vendor,
            product=remote.product,
            serial=remote.serial,
            speed=_SPEED_TEXT[row.speed],
            interfaces=remote.interfaces,
        )
        row.state, row.busid = USED, device.busid
        self._show(row)
        self._events.device("add", device)
        for interface in remote.interfaces:
            self._events.interface("add", device, interface.number)
            if interface.driver is not None:
                self._events.interface("bind", device, interface.number)
        self._events.device("bind", device)
        self._soon(row, self._children)

    def _children(self, row: Row) -> None:
        if row.device is None:
            return
        for subsystem, name, number in row.remote.children:
            path = row.device.child(subsystem, name, interface=number)
            self._events.child("add", subsystem, row.device, path)

    def _shut(self, row: Row) -> None:
        """vhci_shutdown_connection: the socket goes, the row stays as it is."""
        if row.socket is not None:
            row.socket.shutdown()
            row.socket = None
        row.sockfd = NO_SOCKET
        self._show(row)

    def _down(self, row: Row) -> None:
        """VDEV_EVENT_DOWN: shutdown and reset by the event thread."""
        if row.state == FREE:
            return
        self._shut(row)
        if row.stuck:
            return
        if self.detach_delay:
            self._after(self.detach_delay, row, self._reset)
        else:
            self._reset(row)

    def _reset(self, row: Row) -> None:
        """vhci_device_reset frees the row; the hub thread removes the device after that."""
        row.state, row.speed, row.devid, row.sockfd, row.busid = FREE, 0, 0, 0, "0-0"
        self._show(row)
        self._soon(row, self._remove)

    def _remove(self, row: Row) -> None:
        device, row.device = row.device, None
        if device is not None:
            device.unplug()
            self._events.device("remove", device)

    def _soon(self, row: Row, act: Callable[[Row], None]) -> None:
        row.timers.append(asyncio.get_running_loop().call_soon(act, row))

    def _after(self, seconds: float, row: Row, act: Callable[[Row], None]) -> None:
        if seconds:
            row.timers.append(asyncio.get_running_loop().call_later(seconds, act, row))
        else:
            self._soon(row, act)

    def _show(self, changed: Row) -> None:
        rows = [row.text() for row in self.rows if row.controller == changed.controller]
        self.files.status(S1_HEADER + "".join(rows), changed.controller)
