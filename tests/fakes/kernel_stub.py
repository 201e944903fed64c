# SPDX-License-Identifier: Apache-2.0
"""usbip-host as stub_main.c and stub_dev.c have it: match_busid, bind, rebind, sessions."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.kernel_socket import KernelSocket
from tests.fakes.sysfs import STORAGE, FakeDevice, Interface, SysTree
from tests.fakes.uevents import FakeUevents
from usbdra._native import stub as native

AVAILABLE, USED, ERROR = 1, 2, 3
ADDED, ALLOC, OTHER, REMOVED = "added", "alloc", "other", "removed"
MAX_BUSID = 16


class KernelOops(AssertionError):
    """What was written makes the real kernel read freed memory or stop at a BUG."""


@dataclass
class Entry:
    """One `struct bus_id_priv`; `device` is its unchecked pointer to the last bound device."""

    status: str = ADDED
    device: FakeDevice | None = None


@dataclass
class Local:
    """A device of this host and what belongs to it."""

    device: FakeDevice
    interfaces: tuple[Interface, ...]
    children: tuple[tuple[str, str, int], ...]
    socket: KernelSocket | None = None
    timers: list[asyncio.Handle] = field(default_factory=list)


class FakeStub:
    """Settable behaviour: `refuse` maps an operation to the errno that it gives (`bind`,
    `rebind`, `hand_over` ...), `lost_drivers` are interface drivers that do not come back,
    `after` a hook called after each operation with its name, `reset` what a session's end
    leaves: 1 available, 3 error, None never anything; `reset_delay` in seconds."""

    def __init__(self, tree: SysTree, events: FakeUevents) -> None:
        self.tree = tree
        self._events = events
        self.driver = tree.usbip_host()
        self.hub = tree.controller("0000:00:14.0").root_hub(bus=1).hub(1)  # 1-1
        self.locals: dict[str, Local] = {}
        self.entries: dict[str, Entry] = {}
        self.refuse: dict[str, int] = {}
        self.lost_drivers: set[str] = set()
        self.after: Callable[[str], None] = lambda operation: None
        self.reset: int | None = AVAILABLE
        self.reset_delay = 0.0
        (tree.sys / "bus/usb/drivers_probe").write_text("")

    @property
    def sockets(self) -> int:
        return sum(local.socket is not None for local in self.locals.values())

    def plug(
        self,
        port: int,
        *,
        interfaces: tuple[Interface, ...] = (STORAGE,),
        children: tuple[tuple[str, str, int], ...] = (),
        **attributes: Any,
    ) -> FakeDevice:
        """A device at the hub's port: busid `1-1.<port>`."""
        device = self.hub.plug(port, interfaces=interfaces, **attributes)
        self.locals[device.busid] = Local(device, interfaces, children)
        for subsystem, name, number in children:
            device.child(subsystem, name, interface=number)
        self._events.device("add", device)
        return device

    def unplug(self, device: FakeDevice) -> None:
        """Pulled out; a device that is bound to us leaves its entry behind."""
        local = self.locals.pop(device.busid)
        if self._driver_name(device) == "usbip-host":
            self._disconnect(local)
        device.unplug()
        self._events.device("remove", device)

    def peer_gone(self, device: FakeDevice) -> None:
        """The connection of the running session breaks."""
        self._down(self.locals[device.busid])

    def state(self, device: FakeDevice) -> int | None:
        path = device.path / "usbip_status"
        return int(path.read_text()) if path.exists() else None

    def close(self) -> None:
        for local in self.locals.values():
            for timer in local.timers:
                timer.cancel()
            if local.socket is not None:
                local.socket.shutdown()

    # What _native.stub and _native.sysfs offer.

    def match_add(self, driver_dir: bytes, busid: bytes, /) -> None:
        with self._operation("match_add"):
            name = busid.decode()
            if name not in self.entries:
                if len(self.entries) >= MAX_BUSID:
                    raise OSError(errno.ENOMEM, "match_add")
                self.entries[name] = Entry()
            self._show_entries()

    def match_del(self, driver_dir: bytes, busid: bytes, /) -> None:
        with self._operation("match_del"):
            entry = self.entries.get(busid.decode())
            if entry is None:
                raise OSError(errno.ENODEV, "match_del")
            if entry.status == OTHER:
                del self.entries[busid.decode()]
            elif entry.status != ADDED:
                entry.status = REMOVED
            self._show_entries()

    def bind(self, driver_dir: bytes, busid: bytes, /) -> None:
        with self._operation("bind"):
            assert Path(os.fsdecode(driver_dir)) == self.driver
            local = self._local(busid, "bind")
            entry = self.entries.get(local.device.busid)
            if self._driver_name(local.device) is not None:
                raise OSError(errno.EBUSY, "bind")
            if entry is None or entry.status != ADDED:
                raise OSError(errno.ENODEV, "bind")
            entry.status, entry.device = ALLOC, local.device
            local.device.bind("usbip-host")
            self._show_status(local, AVAILABLE)

    def unbind(self, driver_dir: bytes, busid: bytes, /) -> None:
        with self._operation("unbind"):
            local = self._local(busid, "unbind")
            name = Path(os.fsdecode(driver_dir)).name
            if self._driver_name(local.device) != name:
                raise OSError(errno.ENODEV, "unbind")
            if name == "usbip-host":
                self._disconnect(local)
            else:
                self._unconfigure(local)
            local.device.bind(None)

    def rebind(self, driver_dir: bytes, busid: bytes, /) -> None:
        with self._operation("rebind"):
            entry = self.entries.get(busid.decode())
            if entry is None:
                raise OSError(errno.ENODEV, "rebind")
            local = self.locals.get(busid.decode())
            if local is None or entry.device is not local.device:
                raise KernelOops(f"do_rebind of {busid!r}: its device is freed memory")
            if self._driver_name(local.device) is not None:
                raise KernelOops(f"rebind of bound {busid!r}: stub_disconnect will BUG()")
            entry.status = OTHER
            self._probe(local)
            del self.entries[busid.decode()]
            self._show_entries()

    def hand_over(self, device_dir: bytes, sockfd: int, /) -> None:
        with self._operation("hand_over"):
            local = self._by_directory(device_dir)
            if self.state(local.device) != AVAILABLE:
                raise OSError(errno.EINVAL, "hand_over")
            local.socket = KernelSocket(sockfd, lambda: self._down(local))
            self._show_status(local, USED)

    def end_session(self, device_dir: bytes, /) -> None:
        with self._operation("end_session"):
            local = self._by_directory(device_dir)
            if self.state(local.device) != USED:
                raise OSError(errno.EINVAL, "end_session")
            self._later(local, 0.0, self._down)

    def status(self, device_dir: bytes, /) -> int:
        return native.status(device_dir)

    def write(self, path: bytes, data: bytes, /) -> None:
        with self._operation("drivers_probe"):
            assert Path(os.fsdecode(path)) == self.tree.sys / "bus/usb/drivers_probe"
            busid, colon, setting = data.decode().partition(":")
            local = self._local(busid.encode(), "drivers_probe")
            if not colon:
                if self._driver_name(local.device) is None:
                    self._probe(local)
                return
            number = int(setting.partition(".")[2])
            interface = next(i for i in local.interfaces if i.number == number)
            if interface.driver not in self.lost_drivers:
                local.device.bind_interface(number, interface.driver)

    # The inside.

    def force_status(self, device: FakeDevice, status: int) -> None:
        """The device got there by ways that are not ours (a foreign session, an error)."""
        self._show_status(self.locals[device.busid], status)

    def _operation(self, name: str) -> _Operation:
        return _Operation(self, name)

    def _local(self, busid: bytes, operation: str) -> Local:
        local = self.locals.get(busid.decode())
        if local is None:
            raise OSError(errno.ENODEV, operation)
        return local

    def _by_directory(self, directory: bytes) -> Local:
        local = self.locals.get(Path(os.fsdecode(directory)).name)
        if local is None or self.state(local.device) is None:
            raise OSError(errno.ENOENT, "usbip_sockfd")
        return local

    def _driver_name(self, device: FakeDevice) -> str | None:
        link = device.path / "driver"
        return os.readlink(link).rpartition("/")[2] if link.is_symlink() else None

    def _disconnect(self, local: Local) -> None:
        """stub_disconnect: the session ends, the files go, the entry stays as `added`."""
        entry = self.entries.get(local.device.busid)
        if entry is None:
            raise KernelOops("stub_disconnect without an entry: BUG()")
        for timer in local.timers:
            timer.cancel()
        if local.socket is not None:
            local.socket.shutdown()
            local.socket = None
        (local.device.path / "usbip_status").unlink()
        if entry.status == ALLOC:
            entry.status = ADDED

    def _down(self, local: Local) -> None:
        """SDEV_EVENT_DOWN: shutdown, then a reset of the device."""
        if local.socket is not None:
            local.socket.shutdown()
            local.socket = None
        if self.reset is not None:
            self._later(local, self.reset_delay, self._reset)

    def _reset(self, local: Local) -> None:
        if self.reset is not None and self.state(local.device) is not None:
            self._show_status(local, self.reset)

    def _unconfigure(self, local: Local) -> None:
        """The generic driver's disconnect: no configuration, no interfaces."""
        device = local.device
        for interface in local.interfaces:
            path = device.interface(interface.number)
            device.bind_interface(interface.number, None)
            device.remove_tree(path)
        device.write("bConfigurationValue", b"\n")
        device.write("bNumInterfaces", b"\n")

    def _probe(self, local: Local) -> None:
        """The generic driver takes the device, configures it, and its interfaces find theirs."""
        device = local.device
        if "usb" in self.lost_drivers:
            return
        device.bind("usb")
        device.write("bConfigurationValue", b"1\n")
        device.write("bNumInterfaces", b"%2d\n" % len(local.interfaces))
        for interface in local.interfaces:
            device.add_interface(interface)
            self._events.interface("add", device, interface.number)
            if interface.driver in self.lost_drivers:
                device.bind_interface(interface.number, None)
            elif interface.driver is not None:
                self._events.interface("bind", device, interface.number)
        for subsystem, name, number in local.children:
            device.child(subsystem, name, interface=number)

    def _later(self, local: Local, delay: float, act: Callable[[Local], None]) -> None:
        local.timers.append(asyncio.get_running_loop().call_later(delay, act, local))

    def _show_status(self, local: Local, status: int) -> None:
        (local.device.path / "usbip_status").write_text(f"{status}\n")

    def _show_entries(self) -> None:
        text = "".join(f"{name} " for name in self.entries)
        (self.driver / "match_busid").write_text(f"{text}\n")


class _Operation:
    """One write: refused as told, and followed by the test's hook when it went through.

    Writes come from several threads; like a kernel, which locks the device and the bus, the tree
    is changed by one at a time."""

    def __init__(self, stub: FakeStub, name: str) -> None:
        self._stub = stub
        self._name = name

    def __enter__(self) -> None:
        if self._name in self._stub.refuse:
            raise OSError(self._stub.refuse[self._name], self._name)
        self._stub.tree.lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._stub.tree.lock.release()
        if kind is None:
            self._stub.after(self._name)
