# SPDX-License-Identifier: Apache-2.0
"""usbip-host's files: what is written to them, in which order, and what is checked after.

Owns the acts on one device, no records and no locks (exporter/bind.py). Must not decide who may
have a device.

Facts it is built on (drivers/usb/usbip/stub_main.c, stub_dev.c, 4.17 and later):
- `match_busid` has 16 entries. `del` only empties an entry that `rebind` marked before; `del`
  while bound leaves an entry that refuses every later bind. So: unbind, then `rebind`, which
  probes the device's own driver and empties the entry.
- `rebind` uses the pointer to the device that was bound last under this bus id. It is written
  only right after an unbind of a device that is there; for an unplugged one the kernel would
  read freed memory. The entry of a device that was pulled while bound therefore stays until a
  device on the same bus id is bound and released again, which costs no further entry. It does
  nothing meanwhile: a device that comes back goes to its own driver. So no device is taken from
  its host for the entry's sake, until all entries are taken (exporter/bind.py makes room).
- The reset that ends a session needs the device's lock; an unbind that comes before it is done
  makes it fail. So: wait for status 1, then unbind.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from usbdra._native import stub as stub_files
from usbdra._native import sysfs as sysfs_files
from usbdra.errors import DriverNotRestored, ExportFailed, KernelUnsupported
from usbdra.exporter import usbdev
from usbdra.types import BusId
from usbdra.vhci.waiting import Waiter, below

AVAILABLE, USED, ERROR = 1, 2, 3  # usbip_common.h, SDEV_ST_*
STUB = "usbip-host"


class NoMatchEntry(ExportFailed):
    """All 16 entries of `match_busid` are taken, and none of them could be emptied."""


class StubNative(Protocol):
    """What we need of `_native.stub`; tests put a kernel of their own here."""

    def match_add(self, driver_dir: bytes, busid: bytes, /) -> None: ...  # noqa: D102
    def match_del(self, driver_dir: bytes, busid: bytes, /) -> None: ...  # noqa: D102
    def bind(self, driver_dir: bytes, busid: bytes, /) -> None: ...  # noqa: D102
    def unbind(self, driver_dir: bytes, busid: bytes, /) -> None: ...  # noqa: D102
    def rebind(self, driver_dir: bytes, busid: bytes, /) -> None: ...  # noqa: D102
    def hand_over(self, device_dir: bytes, sockfd: int, /) -> None: ...  # noqa: D102
    def end_session(self, device_dir: bytes, /) -> None: ...  # noqa: D102
    def status(self, device_dir: bytes, /) -> int: ...  # noqa: D102


class SysfsNative(Protocol):
    """What we need of `_native.sysfs`."""

    def write(self, path: bytes, data: bytes, /) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class BindLimits:
    """Deadlines in seconds. The reset at the end of a session takes a device about 0.1 s."""

    status: float = 10.0
    driver: float = 5.0


class StubHost:
    """usbip-host below `root`. All waits end at a deadline of `limits`."""

    def __init__(
        self,
        root: Path,
        *,
        stub: StubNative = stub_files,
        sysfs: SysfsNative = sysfs_files,
        limits: BindLimits | None = None,
    ) -> None:
        self._root = root
        self._stub = stub
        self._sysfs = sysfs
        self._limits = limits or BindLimits()

    def entries(self) -> list[BusId]:
        """The bus ids in `match_busid`, those of devices that are gone too."""
        return [BusId(entry) for entry in usbdev.match_entries(self._driver(STUB))]

    def require(self) -> None:
        """Raises KernelUnsupported unless the module is there."""
        path = self._driver(STUB)
        if not (path / "match_busid").exists():
            raise KernelUnsupported(
                f"usbip-host is not loaded ({path}): load it with `modprobe usbip-host` to let "
                "other machines use devices of this one"
            )

    def status(self, busid: BusId) -> int | None:
        """`usbip_status` (1 available, 2 used, 3 error); None when not bound or gone."""
        try:
            return self._stub.status(self._device(busid))
        except (OSError, ValueError):
            return None

    async def take(self, device: usbdev.BoundDevice, waiter: Waiter) -> None:
        """From the device's own driver, or from none, to status 1 at usbip-host.

        Raises OSError and ExportFailed part way; `give_back` undoes every part.
        """
        busid = device.busid
        self._match(busid)
        name = busid.encode()
        if device.driver is not None:
            await in_thread(self._stub.unbind, os.fsencode(self._driver(device.driver)), name)
        await in_thread(self._stub.bind, os.fsencode(self._driver(STUB)), name)
        await self.wait_status(busid, waiter, (AVAILABLE,))

    async def make_ready(self, device: usbdev.BoundDevice, waiter: Waiter) -> None:
        """A device that is with usbip-host: end a session, bring it out of its error state.

        Raises OSError and ExportFailed.
        """
        await self.settle_session(device.busid, waiter)
        if self.status(device.busid) == ERROR:
            await self.take(device, waiter)

    def hand_over(self, busid: BusId, sockfd: int) -> None:
        """Write the socket's number and look what came of it. Borrows sockfd.

        Raises OSError, and ExportFailed when the device is not in use afterwards.
        """
        self._stub.hand_over(self._device(busid), sockfd)
        status = self.status(busid)
        if status != USED:
            raise ExportFailed(
                f"device {busid} took the connection and is at usbip status {status}, not {USED}: "
                "the connection ended at once"
            )

    async def settle_session(self, busid: BusId, waiter: Waiter) -> None:
        """End what session there is; on return the device is at 1, in error, or gone.

        Raises ExportFailed.
        """
        if self.status(busid) != USED:
            return
        try:
            self._stub.end_session(self._device(busid))
        except OSError as error:
            # EINVAL: over meanwhile. ENODEV, ENOENT: unplugged. The status tells.
            if error.errno not in (errno.EINVAL, errno.ENODEV, errno.ENOENT):
                raise ExportFailed(f"session of {busid} cannot be ended: {error}") from error
        await self.wait_status(busid, waiter, (AVAILABLE, ERROR, None))

    async def wait_status(
        self, busid: BusId, waiter: Waiter, wanted: tuple[int | None, ...]
    ) -> None:
        """Wait for one of these; a status changes without an event, so it is read again.

        Raises ExportFailed at the deadline.
        """
        path = usbdev.devpath(self._root, busid)
        reached = await waiter.until(
            lambda: self.status(busid) in wanted or None,
            below(path or ""),
            timeout=self._limits.status,
            reread=True,
        )
        if reached is None:
            raise ExportFailed(
                f"device {busid} stays at usbip status {self.status(busid)} after "
                f"{self._limits.status:g} s"
            )

    async def give_back(
        self, device: usbdev.BoundDevice, drivers: Mapping[str, str], waiter: Waiter
    ) -> None:
        """Unbind from usbip-host and see to it that the device's own drivers are back.

        `drivers` are those of its interfaces before it was taken. Raises ExportFailed (it does
        not let go), DriverNotRestored.
        """
        busid = device.busid
        probed = False
        if device.driver == STUB:
            try:
                driver = os.fsencode(self._driver(STUB))
                await in_thread(self._stub.unbind, driver, busid.encode())
            except OSError as error:
                raise ExportFailed(f"device {busid} does not let go: {error}") from error
            probed = await self._rebind(busid)
        if not probed:
            await self._probe(busid)
        missing = await self._drivers_back(busid, drivers, waiter)
        if missing:
            for name in missing:  # once more, one by one
                await self._probe(name)
            missing = await self._drivers_back(busid, drivers, waiter)
        if missing:
            raise DriverNotRestored(
                f"device {busid} was released and {', '.join(missing)} has no driver again; "
                "replug it, or load the driver's module and run `usbdra unbind` again"
            )

    def _match(self, busid: BusId) -> None:
        """Enter the bus id in `match_busid`; entries that can be emptied make room first."""
        directory = self._driver(STUB)
        raw = os.fsencode(directory)
        try:
            self._stub.match_add(raw, busid.encode())
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
        else:
            return
        entries = self.entries()
        gone = [entry for entry in entries if usbdev.read(self._root, entry) is None]
        for entry in gone:
            with suppress(OSError):
                self._stub.match_del(raw, entry.encode())
        try:
            self._stub.match_add(raw, busid.encode())
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise NoMatchEntry(
                f"device {busid} cannot be exported: usbip-host has room for 16 bus ids and all "
                f"are taken ({', '.join(entries)}; unplugged meanwhile: "
                f"{', '.join(gone) or 'none'}); release one, or plug an unplugged one back in "
                "and release it"
            ) from error

    async def _rebind(self, busid: BusId) -> bool:
        """True when the kernel probed the device's drivers; leaves no entry in either case."""
        directory = self._driver(STUB)
        raw = os.fsencode(directory)
        try:
            await in_thread(self._stub.rebind, raw, busid.encode())
        except OSError:
            rebound = False
        else:
            rebound = True
        if busid in usbdev.match_entries(directory):
            with suppress(OSError):
                self._stub.match_del(raw, busid.encode())
        return rebound

    async def _probe(self, name: str) -> None:
        """Let the USB bus look for drivers of a device or interface that has none."""
        with suppress(OSError):  # what came of it is checked by the caller
            path = os.fsencode(self._root / "sys/bus/usb/drivers_probe")
            await in_thread(self._sysfs.write, path, name.encode())

    async def _drivers_back(
        self, busid: BusId, drivers: Mapping[str, str], waiter: Waiter
    ) -> list[str]:
        """What still lacks a driver at the deadline; usually all is there at once."""
        path = usbdev.devpath(self._root, busid)
        if path is None:
            return []

        def all_back() -> bool | None:
            return not usbdev.missing_drivers(self._root, busid, drivers, STUB) or None

        await waiter.until(all_back, below(path), timeout=self._limits.driver)
        return usbdev.missing_drivers(self._root, busid, drivers, STUB)

    def _device(self, busid: BusId) -> bytes:
        return os.fsencode(usbdev.directory(self._root, busid))

    def _driver(self, name: str) -> Path:
        return usbdev.driver_directory(self._root, name)


async def in_thread(act: Callable[..., None], *arguments: bytes) -> None:
    """A write that ends only when drivers have probed or let go, which may take seconds.

    It cannot be taken back: when the caller is cancelled, it is waited for all the same, so that
    the way back starts from a known state.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(act, *arguments))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
