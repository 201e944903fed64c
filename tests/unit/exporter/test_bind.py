# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.kernel import FakeKernel
from tests.fakes.kernel_stub import AVAILABLE, ERROR, USED
from tests.fakes.sysfs import KEYBOARD, STORAGE, FakeDevice
from tests.fakes.tcp import TcpPair
from usbdra.errors import (
    DeviceBusy,
    DriverNotRestored,
    ExportFailed,
    HostInUse,
    KernelUnsupported,
    NotFound,
    StateError,
)
from usbdra.exporter.bind import Binder
from usbdra.exporter.stubhost import BindLimits, StubHost
from usbdra.state.exports import ExportPhase, ExportRecord, ExportSchema, Session
from usbdra.state.store import RecordStore
from usbdra.types import BusId

BUSID = BusId("1-1.3")
SESSION = Session("key", "claim team/cam of node-b")
LIMITS = BindLimits(status=0.05, driver=0.03)


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[FakeKernel]:
    async with FakeKernel(tmp_path) as fake:
        yield fake


@pytest.fixture
def stick(kernel: FakeKernel) -> FakeDevice:
    return kernel.stub.plug(3, serial=b"A1")


@pytest.fixture
def binder(kernel: FakeKernel) -> Binder:
    return make_binder(kernel)


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair


def make_binder(kernel: FakeKernel, holder: str | None = None) -> Binder:
    """As after a restart: nothing is remembered but what is on disk."""
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub, limits=LIMITS)
    return Binder(kernel.root, events=kernel.events, in_use=lambda busid: holder, host=host)


def journal(kernel: FakeKernel) -> dict[str, ExportRecord]:
    store = RecordStore(kernel.root / "run/usbdra/exports", ExportSchema())
    return store.load_all()[0]


def driver_of(device: FakeDevice, number: int | None = None) -> str | None:
    path = device.path if number is None else device.interface(number)
    try:
        return os.readlink(path / "driver").rpartition("/")[2]
    except FileNotFoundError:  # the writes under test run in a thread of their own
        return None


def at_home(kernel: FakeKernel, device: FakeDevice) -> bool:
    """With its own drivers, no record, no entry in match_busid."""
    drivers = driver_of(device) == "usb" and driver_of(device, 0) == "usb-storage"
    return drivers and journal(kernel) == {} and kernel.stub.entries == {}


async def test_bind_and_release(kernel: FakeKernel, stick: FakeDevice, binder: Binder) -> None:
    record = await binder.bind(BUSID)
    assert record == ExportRecord(
        BUSID, "0781:5581:4131", ExportPhase.BOUND, {"1-1.3:1.0": "usb-storage"}
    )
    assert driver_of(stick) == "usbip-host"
    assert binder.status(BUSID) == AVAILABLE
    assert journal(kernel) == {BUSID: record}
    await binder.release(BUSID)
    assert at_home(kernel, stick)


async def test_r14_both_are_idempotent(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.release(BUSID)
    first = await binder.bind(BUSID)
    assert await binder.bind(BUSID) == first
    await binder.release(BUSID)
    await binder.release(BUSID)
    assert at_home(kernel, stick)


async def test_devices_bound_and_released_side_by_side(kernel: FakeKernel) -> None:
    sticks = [kernel.stub.plug(port, serial=b"S%d" % port) for port in range(3, 15)]
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub)
    binder = Binder(kernel.root, events=kernel.events, in_use=lambda busid: None, host=host)
    for _ in range(3):
        await asyncio.gather(*(binder.bind(BusId(stick.busid)) for stick in sticks))
        assert {driver_of(stick) for stick in sticks} == {"usbip-host"}
        await asyncio.gather(*(binder.release(BusId(stick.busid)) for stick in sticks))
        assert all(at_home(kernel, stick) for stick in sticks)


class Killed(BaseException):
    """SIGKILL: nothing of ours runs after it."""


@pytest.mark.parametrize("point", ["match_add", "unbind", "bind"])
@pytest.mark.parametrize("then", ["recover", "bind", "release"])
async def test_r14_killed_between_two_writes(
    kernel: FakeKernel,
    stick: FakeDevice,
    binder: Binder,
    point: str,
    then: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill(operation: str) -> None:
        if operation == point:
            raise Killed

    async def nothing(*_: object) -> None:
        """What was killed undoes nothing."""

    kernel.stub.after = kill
    with monkeypatch.context() as patch:
        patch.setattr(Binder, "_undo", nothing)
        with pytest.raises(Killed):
            await binder.bind(BUSID)
    kernel.stub.after = lambda operation: None
    assert journal(kernel)[BUSID].phase is ExportPhase.BINDING
    after = make_binder(kernel)
    if then == "recover":
        found = await after.recover()
        assert (found.running, found.failures, found.set_aside) == ((), (), ())
    elif then == "release":
        await after.release(BUSID)
    else:
        record = await after.bind(BUSID)
        assert record.drivers == {"1-1.3:1.0": "usb-storage"}
        assert kernel.stub.state(stick) == AVAILABLE
        await after.release(BUSID)
    assert driver_of(stick) == "usb"
    assert driver_of(stick, 0) == "usb-storage"
    assert journal(kernel) == {}


async def test_r14_killed_while_releasing_is_finished_at_the_start(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID)

    def kill(operation: str) -> None:
        if operation == "unbind":
            raise Killed

    kernel.stub.after = kill
    with pytest.raises(Killed):
        await binder.release(BUSID)
    kernel.stub.after = lambda operation: None
    assert journal(kernel)[BUSID].phase is ExportPhase.RELEASING
    await make_binder(kernel).recover()
    assert driver_of(stick, 0) == "usb-storage"
    assert journal(kernel) == {}


async def test_r11_status_error_is_brought_back(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID)
    kernel.stub.force_status(stick, ERROR)
    await binder.bind(BUSID)
    assert kernel.stub.state(stick) == AVAILABLE
    await binder.release(BUSID)
    assert at_home(kernel, stick)


async def test_r11_session_in_no_record_is_ended(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID)
    kernel.stub.force_status(stick, USED)
    await binder.bind(BUSID)
    assert kernel.stub.state(stick) == AVAILABLE


async def test_r11_live_session_is_refused_and_its_holder_named(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    await binder.bind(BUSID)
    await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    with pytest.raises(DeviceBusy, match="claim team/cam of node-b") as caught:
        await make_binder(kernel).bind(BUSID)
    assert caught.value.holder == SESSION.holder
    assert kernel.stub.state(stick) == USED


async def test_r11_session_that_ends_in_error_is_brought_back(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    kernel.stub.reset = ERROR
    await binder.bind(BUSID)
    await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    await binder.end_session(BUSID)
    assert kernel.stub.state(stick) == ERROR
    await binder.bind(BUSID)
    assert kernel.stub.state(stick) == AVAILABLE


async def test_hand_over_and_end(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    await binder.bind(BUSID)
    await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    link.ours.close()
    assert journal(kernel)[BUSID].session == SESSION
    assert kernel.sockets == 1
    await binder.end_session(BUSID)
    assert kernel.sockets == 0
    assert journal(kernel)[BUSID].session is None
    assert link.peer_sees_end()
    await binder.release(BUSID)
    assert at_home(kernel, stick)


async def test_hand_over_refused_leaves_no_session_in_the_record(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    with pytest.raises(ExportFailed, match="not bound by us"):
        await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    await binder.bind(BUSID)
    kernel.stub.refuse = {"hand_over": errno.EINVAL}
    with pytest.raises(ExportFailed, match="refused the connection"):
        await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    assert journal(kernel)[BUSID].session is None


async def test_hand_over_of_a_dead_connection_is_noticed(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    await binder.bind(BUSID)
    kernel.stub.after = lambda operation: (
        kernel.stub.force_status(stick, AVAILABLE) if operation == "hand_over" else None
    )
    with pytest.raises(ExportFailed, match="ended at once"):
        await binder.hand_over(BUSID, link.ours.fileno(), SESSION)


async def test_release_waits_for_the_reset_before_it_unbinds(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    kernel.stub.reset_delay = 0.02
    seen: list[int | None] = []
    await binder.bind(BUSID)
    await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    real = kernel.stub.unbind

    def unbind(directory: bytes, busid: bytes, /) -> None:
        seen.append(kernel.stub.state(stick))
        real(directory, busid)

    kernel.stub.unbind = unbind  # type: ignore[method-assign]
    await binder.release(BUSID)
    assert seen == [AVAILABLE]
    assert at_home(kernel, stick)


async def test_r15_rebind_refused_falls_back_to_a_probe(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID)
    kernel.stub.refuse = {"rebind": errno.ENODEV}
    await binder.release(BUSID)
    assert driver_of(stick) == "usb"
    assert driver_of(stick, 0) == "usb-storage"
    assert journal(kernel) == {}


@pytest.mark.parametrize(("lost", "named"), [("usb-storage", "1-1.3:1.0"), ("usb", "1-1.3")])
async def test_r15_driver_that_stays_away_is_told_and_remembered(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, lost: str, named: str
) -> None:
    await binder.bind(BUSID)
    kernel.stub.lost_drivers = {lost}
    with pytest.raises(DriverNotRestored, match=named):
        await binder.release(BUSID)
    assert journal(kernel)[BUSID].phase is ExportPhase.RELEASING
    kernel.stub.lost_drivers = set()
    await binder.release(BUSID)
    assert driver_of(stick, 0) == "usb-storage"
    assert journal(kernel) == {}


async def test_r13_what_the_host_uses_is_not_touched(kernel: FakeKernel, stick: FakeDevice) -> None:
    binder = make_binder(kernel, holder="mounted at / (sda2)")
    with pytest.raises(HostInUse, match="mounted at /") as caught:
        await binder.bind(BUSID)
    assert caught.value.reason == "InUse"
    assert at_home(kernel, stick)


@pytest.mark.parametrize("step", ["match_add", "unbind", "bind"])
async def test_r45_failed_bind_gives_the_device_back(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, step: str
) -> None:
    kernel.stub.refuse = {step: errno.EIO}
    with pytest.raises(ExportFailed, match=f"1-1.3 cannot be exported.*{step}"):
        await binder.bind(BUSID)
    assert driver_of(stick) == "usb"
    assert driver_of(stick, 0) == "usb-storage"
    assert journal(kernel) == {}


async def test_r45_way_back_fails_too_and_the_record_stays_for_release(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    kernel.stub.refuse = {"bind": errno.EIO}
    kernel.stub.lost_drivers = {"usb"}
    with pytest.raises(ExportFailed, match="bind"):  # the first error
        await binder.bind(BUSID)
    assert journal(kernel)[BUSID].phase is ExportPhase.BINDING
    kernel.stub.refuse, kernel.stub.lost_drivers = {}, set()
    assert (await make_binder(kernel).recover()).failures == ()
    assert driver_of(stick, 0) == "usb-storage"
    assert journal(kernel) == {}


async def test_r45_no_space_is_told_before_the_kernel_is_touched(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StateError, match="No space left"):
            await binder.bind(BUSID)
    assert at_home(kernel, stick)


async def test_cancelled_bind_gives_the_device_back(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    kernel.stub.after = lambda operation: (
        kernel.stub.force_status(stick, ERROR) if operation == "bind" else None
    )
    binding = asyncio.create_task(binder.bind(BUSID))
    while driver_of(stick) != "usbip-host":
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert at_home(kernel, stick)


async def test_r22_replugged_while_exported_is_a_new_device(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID)
    kernel.stub.unplug(stick)
    assert binder.status(BUSID) is None
    assert binder.record(BUSID) is None
    with pytest.raises(NotFound, match=r"no USB device 1-1\.3"):
        await binder.release(BUSID)
    back = kernel.stub.plug(3, serial=b"A1")
    assert driver_of(back) == "usb"
    assert await binder.bind(BUSID)  # the leaked entry is used again
    await binder.release(BUSID)
    assert at_home(kernel, back)


async def test_r22_another_device_on_the_bus_id_is_not_taken_for_the_old_one(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID, pinned=True)
    kernel.stub.unplug(stick)
    other = kernel.stub.plug(3, serial=b"B2")
    found = await make_binder(kernel).recover()
    assert (found.running, found.failures) == ((), ())
    assert driver_of(other) == "usb"
    assert journal(kernel) == {}


async def test_pinned_devices_are_bound_again_at_the_start(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID, pinned=True)
    kernel.stub.force_status(stick, ERROR)
    await make_binder(kernel).recover()
    assert kernel.stub.state(stick) == AVAILABLE
    assert journal(kernel)[BUSID].pinned


async def test_running_sessions_survive_a_restart(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    await binder.bind(BUSID)
    await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    found = await make_binder(kernel).recover()
    assert [record.session for record in found.running] == [SESSION]
    assert kernel.stub.state(stick) == USED
    assert kernel.sockets == 1


async def test_session_that_ended_meanwhile_is_released_at_the_start(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder, link: TcpPair
) -> None:
    await binder.bind(BUSID)
    await binder.hand_over(BUSID, link.ours.fileno(), SESSION)
    kernel.stub.peer_gone(stick)
    await asyncio.sleep(0.01)
    await make_binder(kernel).recover()
    assert at_home(kernel, stick)


async def test_unreadable_record_is_set_aside_and_told(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    await binder.bind(BUSID)
    path = kernel.root / "run/usbdra/exports/1-1.3.json"
    path.write_text("{")
    found = await make_binder(kernel).recover()
    assert [one.name for one in found.set_aside] == ["1-1.3"]
    await binder.release(BUSID)
    assert driver_of(stick, 0) == "usb-storage"


async def test_full_match_table_names_what_is_in_it(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    for number in range(16):
        kernel.stub.match_add(b"", f"7-{number + 1}".encode())
    with pytest.raises(ExportFailed, match=r"16 bus ids .*7-1, 7-2.*unplugged meanwhile: 7-1"):
        await binder.bind(BUSID)
    assert driver_of(stick) == "usb"
    assert journal(kernel) == {}
    entry = kernel.stub.entries["7-4"]
    kernel.stub.entries["7-4"] = replace(entry, status="other")  # `del` can empty this one
    await binder.bind(BUSID)
    assert "7-4" not in kernel.stub.entries


def pulled_while_bound(kernel: FakeKernel, port: int) -> FakeDevice:
    """A device that is back with its own driver and left its entry behind."""
    name = f"1-1.{port}".encode()
    first = kernel.stub.plug(port, serial=b"P")
    kernel.stub.match_add(b"", name)
    kernel.stub.unbind(b"usb", name)
    kernel.stub.bind(bytes(kernel.stub.driver), name)
    kernel.stub.unplug(first)
    return kernel.stub.plug(port, serial=b"P")


async def test_room_is_made_by_a_device_that_was_pulled_and_is_back(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    back = pulled_while_bound(kernel, 9)
    for number in range(15):
        kernel.stub.match_add(b"", f"7-{number + 1}".encode())
    await binder.bind(BUSID)
    assert driver_of(stick) == "usbip-host"
    assert driver_of(back) == "usb"
    assert driver_of(back, 0) == "usb-storage"
    assert "1-1.9" not in kernel.stub.entries
    assert list(journal(kernel)) == [BUSID]


async def test_room_is_not_made_by_a_device_that_the_host_uses(
    kernel: FakeKernel, stick: FakeDevice
) -> None:
    pulled_while_bound(kernel, 9)
    for number in range(15):
        kernel.stub.match_add(b"", f"7-{number + 1}".encode())
    written: list[str] = []
    kernel.stub.after = written.append
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub, limits=LIMITS)
    used = Binder(
        kernel.root,
        events=kernel.events,
        in_use=lambda busid: "mounted" if busid == "1-1.9" else None,
        host=host,
    )
    with pytest.raises(ExportFailed, match=r"all are taken .*1-1\.9"):
        await used.bind(BUSID)
    assert "unbind" not in written
    assert driver_of(stick) == "usb"
    assert journal(kernel) == {}


async def test_of_two_binds_that_need_room_both_get_it(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    """Each takes the lock of a device that is not its own: neither holds its own meanwhile."""
    other = kernel.stub.plug(4, serial=b"B2")
    for port in (8, 9):
        pulled_while_bound(kernel, port)
    for number in range(14):
        kernel.stub.match_add(b"", f"7-{number + 1}".encode())
    await asyncio.gather(binder.bind(BUSID), binder.bind(BusId("1-1.4")))
    assert driver_of(stick) == driver_of(other) == "usbip-host"
    assert set(journal(kernel)) == {BUSID, "1-1.4"}


async def test_module_missing_is_told(
    kernel: FakeKernel, stick: FakeDevice, binder: Binder
) -> None:
    (kernel.root / "sys/bus/usb/drivers/usbip-host/match_busid").unlink()
    with pytest.raises(KernelUnsupported, match="modprobe usbip-host"):
        await binder.bind(BUSID)
    with pytest.raises(NotFound):
        await binder.bind(BusId("9-9"))


async def test_every_interface_gets_its_driver_back(kernel: FakeKernel, binder: Binder) -> None:
    device = kernel.stub.plug(
        4, interfaces=(STORAGE, replace(KEYBOARD, number=1)), children=(("block", "sda", 0),)
    )
    record = await binder.bind(BusId("1-1.4"))
    assert record.drivers == {"1-1.4:1.0": "usb-storage", "1-1.4:1.1": "usbhid"}
    assert not (kernel.root / "sys/block/sda").exists()
    await binder.release(BusId("1-1.4"))
    assert (driver_of(device, 0), driver_of(device, 1)) == ("usb-storage", "usbhid")
    assert (kernel.root / "sys/block/sda").exists()
