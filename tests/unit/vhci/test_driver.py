# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from tests.fakes.kernel import FakeKernel
from tests.fakes.kernel_vhci import USED
from tests.fakes.tcp import TcpPair
from usbdra.errors import (
    AttachFailed,
    DetachStuck,
    KernelUnsupported,
    NoFreePort,
    NotFound,
    UnknownStatusLayout,
)
from usbdra.transport.ending import LinkEnd
from usbdra.types import Hub, PortId, PortState
from usbdra.vhci.driver import VhciDriver
from usbdra.vhci.waiting import Waiter

DEVID = 0x0003_0007


def states(driver: VhciDriver) -> dict[int, PortState]:
    return {p.port: p.state for p in driver.table().ports if p.state is not PortState.FREE}


async def test_attach_enumerate_detach(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        link.ours.close()  # the kernel has its own reference
        assert (placed.port, placed.hub, placed.busid) == (0, Hub.HIGH, "10-1")
        assert states(driver) == {0: PortState.ATTACHING}
        await driver.enumerated(placed, waiter, timeout=2)
        row = driver.table().ports[0]
        assert (row.state, row.devid, row.local_busid) == (PortState.USED, DEVID, "10-1")
        assert driver.table().hubs[Hub.HIGH].free == 7
        assert driver.place(PortId(0)) == placed
        await driver.detach(placed.port, waiter)
    assert states(driver) == {}
    assert driver.place(PortId(0)) is None
    assert not (kernel.root / "sys/bus/usb/devices/10-1").exists()
    assert kernel.sockets == 0
    assert link.peer_sees_end()


async def test_super_speed_goes_to_the_super_hub_on_its_own_ports(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    placed = await driver.attach(link.ours.fileno(), DEVID, 5)
    assert (placed.port, placed.hub, placed.busid) == (8, Hub.SUPER, "11-1")


async def test_r01_ports_of_later_controllers_are_attached_in_number_0(
    tmp_path: Path, link: TcpPair
) -> None:
    async with FakeKernel(tmp_path, controllers=8, high=15, super_=15) as kernel:
        driver = VhciDriver(tmp_path, native=kernel.vhci)
        for port in range(240):
            if port % 30 < 15 and port != 221:
                kernel.vhci.take(port)
        table = driver.table()
        assert (table.hubs[Hub.HIGH].capacity, table.hubs[Hub.HIGH].free) == (120, 1)
        async with Waiter(kernel.events) as waiter:
            placed = await driver.attach(link.ours.fileno(), DEVID, 3)
            assert (placed.port, placed.controller, placed.busid) == (221, 7, "24-12")
            await driver.enumerated(placed, waiter, timeout=2)
            await driver.detach(PortId(221), waiter)
        assert driver.table().ports[221].state is PortState.FREE


async def test_r02_unknown_header_means_no_attach_write(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    header = "hub port sta spd dev sockfd local_busid flags"
    kernel.vhci.files.status(f"{header}\nhs 0000 004 000 00000000 000000 0-0 0\n")
    with pytest.raises(UnknownStatusLayout, match="flags") as caught:
        await driver.attach(link.ours.fileno(), DEVID, 3)
    assert caught.value.header == header
    assert kernel.vhci.attach_writes == []


async def test_r03_full_hub_is_told_with_node_and_numbers(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    for port in range(8):
        kernel.vhci.take(port)
    with pytest.raises(NoFreePort, match="no high-speed port free on node-b: 8 of 8"):
        await driver.attach(link.ours.fileno(), DEVID, 3)
    assert kernel.vhci.attach_writes == []


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EINVAL])
async def test_r04_port_taken_meanwhile(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair, code: int
) -> None:
    kernel.vhci.busy_errno = code
    kernel.vhci.before_attach = [lambda: kernel.vhci.take(0), lambda: kernel.vhci.take(1)]
    placed = await driver.attach(link.ours.fileno(), DEVID, 3)
    assert placed.port == 2
    assert kernel.vhci.attach_writes == [(0, DEVID, 3), (1, DEVID, 3), (2, DEVID, 3)]


async def test_r04_two_at_once_end_on_different_ports(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    other = VhciDriver(kernel.root, native=kernel.vhci)  # another process of ours
    with TcpPair() as second:
        first, then = await asyncio.gather(
            driver.attach(link.ours.fileno(), DEVID, 3),
            other.attach(second.ours.fileno(), DEVID + 1, 3),
        )
    assert {first.port, then.port} == {0, 1}
    assert len(kernel.vhci.attach_writes) == 2


async def test_r04_other_einval_is_final(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    number = link.ours.fileno()
    link.ours.close()
    with pytest.raises(AttachFailed, match="refused port 0"):
        await driver.attach(number, DEVID, 3)
    assert kernel.vhci.attach_writes == [(0, DEVID, 3)]
    assert states(driver) == {}


async def test_r04_tries_are_bounded(kernel: FakeKernel, driver: VhciDriver, link: TcpPair) -> None:
    def take(port: int) -> None:
        kernel.vhci.take(port)

    kernel.vhci.before_attach = [lambda p=p: take(p) for p in range(8)]  # type: ignore[misc]
    with pytest.raises(AttachFailed, match="3 ports were taken"):
        await driver.attach(link.ours.fileno(), DEVID, 3, busy_retry=2)
    assert len(kernel.vhci.attach_writes) == 3


async def test_r05_super_plus_falls_back_once_and_is_remembered(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.knows_super_plus = False
    placed = await driver.attach(link.ours.fileno(), DEVID, 6)
    assert (placed.port, placed.hub, placed.speed_code) == (8, Hub.SUPER, 5)
    await driver.attach(link.ours.fileno(), DEVID, 6)
    assert kernel.vhci.attach_writes == [(8, DEVID, 6), (8, DEVID, 5), (9, DEVID, 5)]


async def test_r05_super_plus_stays_where_the_kernel_knows_it(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    placed = await driver.attach(link.ours.fileno(), DEVID, 6)
    assert placed.speed_code == 6
    assert kernel.vhci.attach_writes == [(8, DEVID, 6)]


async def test_r05_other_failures_do_not_teach_a_fallback(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    with pytest.raises(AttachFailed):
        await driver.attach(999_999, DEVID, 6)
    placed = await driver.attach(link.ours.fileno(), DEVID, 6)
    assert placed.speed_code == 6


async def test_r07_silent_device_fails_within_its_deadline(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.enumeration = "silent"
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        with pytest.raises(AttachFailed, match=r"not answer within 0.05 s .*attaching"):
            await driver.enumerated(placed, waiter, timeout=0.05)
        await driver.detach(placed.port, waiter)
    assert states(driver) == {}


@pytest.mark.parametrize(("how", "left"), [("drop", "free"), ("error", "error")])
async def test_r07_a_row_that_goes_back_is_noticed_at_once(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair, how: str, left: str
) -> None:
    kernel.vhci.enumeration = how  # type: ignore[assignment]
    end = LinkEnd(link.ours)
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        async with asyncio.timeout(1):
            with pytest.raises(AttachFailed, match=f"the link ended .*port is {left}"):
                await driver.enumerated(placed, waiter, timeout=30, ended=end.ended)
        await driver.detach(placed.port, waiter)
    end.close()
    assert states(driver) == {}


async def test_r08_detach_is_over_when_the_row_is_free(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.detach_delay = 0.05
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        await driver.enumerated(placed, waiter, timeout=2)
        going = asyncio.create_task(driver.detach(placed.port, waiter))
        await asyncio.sleep(0.02)
        assert states(driver) == {0: PortState.STOPPING}
        assert not going.done()
        await going
    assert states(driver) == {}


async def test_r08_stuck_port_is_out_of_capacity_and_not_used_again(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        await driver.enumerated(placed, waiter, timeout=2)
        kernel.vhci.stick(0)
        with pytest.raises(DetachStuck, match="port 0 did not come free"):
            await driver.detach(placed.port, waiter, timeout=0.05)
        assert driver.stuck == {PortId(0)}
        high = driver.table().hubs[Hub.HIGH]
        assert (high.capacity, high.free, high.broken) == (7, 7, 1)
        with TcpPair() as second:
            again = await driver.attach(second.ours.fileno(), DEVID, 3)
        assert again.port == 1
        kernel.vhci.unstick(0)
        assert driver.table().hubs[Hub.HIGH].broken == 0
        assert driver.stuck == frozenset()


async def test_detach_of_a_free_port_is_no_error_and_no_write(
    kernel: FakeKernel, driver: VhciDriver
) -> None:
    async with Waiter(kernel.events) as waiter:
        await driver.detach(PortId(3), waiter)
        with pytest.raises(NotFound):
            await driver.detach(PortId(99), waiter)


async def test_r10_health_is_what_the_rows_say(kernel: FakeKernel, driver: VhciDriver) -> None:
    """A kernel that logs "speed not set" on load has all rows at 004 and works."""
    hubs = driver.table().hubs
    assert (hubs[Hub.HIGH].free, hubs[Hub.SUPER].free) == (8, 8)
    assert (hubs[Hub.HIGH].broken, hubs[Hub.SUPER].broken) == (0, 0)


async def test_r29_rows_and_not_memory_tell_what_is_attached(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    """After a suspend all links are dead; nothing of ours still says "attached"."""
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        await driver.enumerated(placed, waiter, timeout=2)
    assert kernel.vhci.rows[0].state == USED
    kernel.vhci.lose_link(0)
    assert states(driver) == {}
    assert driver.place(placed.port) is None


async def test_a_lost_event_is_made_good_by_a_rescan(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    kernel.vhci.enumeration = "silent"
    async with Waiter(kernel.events) as waiter:
        placed = await driver.attach(link.ours.fileno(), DEVID, 3)
        waiting = asyncio.create_task(driver.enumerated(placed, waiter, timeout=5))
        await asyncio.sleep(0)
        kernel.vhci.files.hubs[0][0].plug(1)  # appeared, and its event was lost
        kernel.source.overrun()
        async with asyncio.timeout(1):
            await waiting


async def test_module_missing_and_unreadable_status_are_told(
    kernel: FakeKernel, driver: VhciDriver
) -> None:
    status = kernel.vhci.files.path / "status"
    status.unlink()
    with pytest.raises(KernelUnsupported, match="modprobe vhci-hcd"):
        driver.table()
    status.mkdir()
    with pytest.raises(KernelUnsupported, match="cannot be read"):
        driver.table()


async def test_reserved_ports_and_the_word_before_the_write(
    kernel: FakeKernel, driver: VhciDriver, link: TcpPair
) -> None:
    told: list[tuple[int, int]] = []

    async def before(port: PortId) -> None:
        told.append((port, len(kernel.vhci.attach_writes)))

    placed = await driver.attach(link.ours.fileno(), DEVID, 3, reserved=[PortId(0)], before=before)
    assert placed.port == 1
    assert told == [(1, 0)]


async def test_lock_file_is_private(kernel: FakeKernel, driver: VhciDriver, link: TcpPair) -> None:
    await driver.attach(link.ours.fileno(), DEVID, 3)
    lock = kernel.root / "run/usbdra/vhci.lock"
    assert lock.stat().st_mode & 0o777 == 0o600  # that it is closed, conftest.py checks
