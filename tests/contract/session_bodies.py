# SPDX-License-Identifier: Apache-2.0
"""One device through export, attach, detach and release, on the fake kernel and on a real one.

Standard library and the product only, so that a node can run the bodies without pytest: there
the device is a gadget of the node itself, and the link is a loopback connection, so that one
kernel exports and imports. Each body raises AssertionError with what it saw.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from usbdra.discovery.tree import read_device
from usbdra.errors import AttachFailed, ExportFailed
from usbdra.exporter.bind import Binder
from usbdra.exporter.lease import remote_of
from usbdra.importer.attach import Attacher
from usbdra.state.exports import Session
from usbdra.types import Attachment, BusId, DeviceName, Offer, PortState, RemoteDevice
from usbdra.vhci.driver import VhciDriver
from usbdra.vhci.waiting import EventSource, Waiter

SESSION = Session("contract", "the contract test")


@dataclass(frozen=True)
class World:
    """A node below `root` with a storage device at `busid`."""

    root: Path
    busid: BusId
    driver: VhciDriver
    binder: Binder
    attacher: Attacher
    events: EventSource

    def remote(self) -> RemoteDevice:
        link = self.root / "sys/bus/usb/devices" / self.busid
        real = link.resolve(strict=True).relative_to(self.root.resolve())
        device = read_device(self.root, f"/{real}")
        assert device is not None, self.busid
        return remote_of(Offer(DeviceName("contract"), device, True, True, ""))

    def driver_of(self, name: str) -> str | None:
        try:
            return os.readlink(self.root / "sys/bus/usb/devices" / name / "driver").split("/")[-1]
        except FileNotFoundError:
            return None

    def used(self) -> list[tuple[int, str]]:
        ports = self.driver.table().ports
        return [(p.port, p.state.value) for p in ports if p.state is not PortState.FREE]

    def entries(self) -> list[str]:
        path = self.root / "sys/bus/usb/drivers/usbip-host/match_busid"
        return path.read_text().split()

    def at_home(self) -> bool:
        """Where it was: its drivers, no record, no entry, no port in use."""
        drivers = self.driver_of(self.busid), self.driver_of(f"{self.busid}:1.0")
        return (
            drivers == ("usb", "usb-storage")
            and self.binder.record(self.busid) is None
            and self.busid not in self.entries()
            and self.used() == []
        )

    def show(self) -> str:
        return (
            f"{self.driver_of(self.busid)} {self.driver_of(f'{self.busid}:1.0')} "
            f"{self.binder.record(self.busid)} {self.entries()} {self.used()}"
        )


async def failure_of(act: Awaitable[object], kind: type[Exception]) -> Exception:
    """The error of this kind that the act ends with."""
    seen: Exception | None = None
    try:
        await act
    except kind as error:
        seen = error
    assert seen is not None, f"went through, no {kind.__name__}"
    return seen


async def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), timeout=10)
        accepted, _ = server.accept()
    for sock in (client, accepted):
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, accepted


async def attached(world: World) -> Attachment:
    """Bound, handed over, attached: the device is here twice."""
    await world.binder.bind(world.busid)
    remote = world.remote()
    ours, theirs = await tcp_pair()
    with theirs:
        await world.binder.hand_over(world.busid, theirs.fileno(), SESSION)
    return await world.attacher.attach(ours, remote)


async def bind_twice_release_twice(world: World) -> None:
    for _ in range(2):
        record = await world.binder.bind(world.busid)
        assert record.drivers == {f"{world.busid}:1.0": "usb-storage"}, record
        assert world.binder.status(world.busid) == 1
        assert world.driver_of(world.busid) == "usbip-host"
    for _ in range(2):
        await world.binder.release(world.busid)
        assert world.at_home(), world.show()


async def seventeen_rounds_leave_no_entry(world: World) -> None:
    """`match_busid` has 16 entries: one that leaked a round would fail the last."""
    for _ in range(17):
        await world.binder.bind(world.busid)
        await world.binder.release(world.busid)
    assert world.at_home(), world.show()


async def disk_is_usable_and_goes_again(world: World) -> None:
    found = await attached(world)
    assert found.unsettled == (), found
    assert "block" in {child.kind for child in found.children}, found
    assert world.used() == [(found.port, "used")]
    assert world.binder.status(world.busid) == 2
    placed = world.driver.place(found.port)
    assert placed is not None
    assert placed.busid == found.device.busid
    row = next(p for p in world.driver.table().ports if p.port == found.port)
    assert row.local_busid == found.device.busid, row
    assert row.devid == found.remote.devid, row
    async with Waiter(world.events) as waiter:
        await world.driver.detach(found.port, waiter)
    assert world.used() == []
    assert not (world.root / "sys/bus/usb/devices" / found.device.busid).exists()
    await world.binder.session_over(world.busid)
    assert world.binder.status(world.busid) == 1
    await world.binder.release(world.busid)
    assert world.at_home(), world.show()


async def exporter_ends_the_session(world: World) -> None:
    found = await attached(world)
    async with Waiter(world.events) as waiter:
        await world.binder.end_session(world.busid)
        assert world.binder.status(world.busid) == 1
        gone = await waiter.until(
            lambda: world.used() == [] or None, lambda _: False, timeout=10, reread=True
        )
    assert gone, world.show()
    assert found.port not in world.driver.stuck
    await world.binder.release(world.busid)
    assert world.at_home(), world.show()


async def silent_peer_fails_and_leaves_nothing(world: World) -> None:
    """R07: a peer that never answers; the device's own exporter is not involved."""
    ours, theirs = await tcp_pair()
    with theirs:
        error = await failure_of(world.attacher.attach(ours, world.remote()), AttachFailed)
        assert "did not answer" in str(error), error
        theirs.settimeout(10)
        while theirs.recv(4096):  # the kernel's requests, then the end
            pass
    assert world.used() == []
    assert ours.fileno() == -1


async def peer_that_closes_fails_at_once(world: World) -> None:
    ours, theirs = await tcp_pair()
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, theirs.close)
    started = loop.time()
    error = await failure_of(world.attacher.attach(ours, world.remote()), AttachFailed)
    assert "link ended" in str(error), error
    assert loop.time() - started < 3, "the deadline was waited for"
    assert world.used() == []


async def second_session_is_refused_by_the_kernel(world: World) -> None:
    await world.binder.bind(world.busid)
    first, theirs = await tcp_pair()
    second, others = await tcp_pair()
    with first, theirs, second, others:
        await world.binder.hand_over(world.busid, theirs.fileno(), SESSION)
        again = world.binder.hand_over(world.busid, others.fileno(), SESSION)
        error = await failure_of(again, ExportFailed)
        assert isinstance(error.__cause__, OSError), error
        assert error.__cause__.errno == errno.EINVAL, error
    await world.binder.release(world.busid)
    assert world.at_home(), world.show()


Body = Callable[[World], Awaitable[None]]
BODIES: tuple[Body, ...] = (
    bind_twice_release_twice,
    seventeen_rounds_leave_no_entry,
    disk_is_usable_and_goes_again,
    exporter_ends_the_session,
    silent_peer_fails_and_leaves_nothing,
    peer_that_closes_fails_at_once,
    second_session_is_refused_by_the_kernel,
)


def run_real(busid: str, journal: str) -> dict[str, float]:
    """All bodies on this machine's kernel with the device at `busid`; seconds by body name."""
    return asyncio.run(_run_real(BusId(busid), Path(journal)))


async def _run_real(busid: BusId, journal: Path) -> dict[str, float]:
    from usbdra.discovery.uevent import NetlinkSource, UeventHub
    from usbdra.importer.attach import AttachLimits

    loop = asyncio.get_running_loop()
    root = Path("/")
    took: dict[str, float] = {}
    events = UeventHub(NetlinkSource())
    events.start()
    try:
        driver = VhciDriver(root, lock_file=journal / "vhci.lock")
        binder = Binder(root, events=events, in_use=lambda _: None, journal=journal)
        limits = AttachLimits(enumerate=5.0, detach=10.0)
        attacher = Attacher(driver, events, root=root, limits=limits)
        world = World(root, busid, driver, binder, attacher, events)
        for body in BODIES:
            started = loop.time()
            try:
                await asyncio.wait_for(body(world), 60)
            except Exception as error:
                raise AssertionError(f"{getattr(body, '__name__', body)}: {error!r}") from error
            took[getattr(body, "__name__", str(body))] = round(loop.time() - started, 3)
    finally:
        events.close()
    return took
