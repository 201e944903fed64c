# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.kernel import FakeKernel
from tests.fakes.sysfs import KEYBOARD, STORAGE, Interface
from tests.fakes.sysfs_device import FakeDevice
from usbdra.errors import AttachFailed
from usbdra.importer.children import Settled, SettleLimits, settle
from usbdra.vhci.waiting import Waiter

LIMITS = SettleLimits(driver=0.03, total=0.06)
PATIENT = SettleLimits(driver=5.0, total=5.0)


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[FakeKernel]:
    async with FakeKernel(tmp_path) as fake:
        yield fake


def appear(kernel: FakeKernel, *interfaces: Interface, **attributes: object) -> FakeDevice:
    """A device on the vhci root hub whose events are not sent yet."""
    hub = kernel.vhci.files.hubs[0][0]
    return hub.plug(1, interfaces=interfaces, **attributes)  # type: ignore[arg-type]


async def settled(kernel: FakeKernel, device: FakeDevice, limits: SettleLimits = LIMITS) -> Settled:
    async with Waiter(kernel.events) as waiter:
        return await settle(kernel.root, device.devpath, waiter, limits=limits)


async def test_lost_bind_events_are_no_reason_to_wait(kernel: FakeKernel) -> None:
    device = appear(kernel, STORAGE)
    device.child("block", "sda", ("sda1",))
    waiting = asyncio.create_task(settled(kernel, device, PATIENT))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    kernel.source.overrun()
    found = await asyncio.wait_for(waiting, 1)
    assert [child.path for child in found.children] == ["/dev/sda", "/dev/sda1"]


async def test_driver_that_has_not_finished_binding_is_waited_for(kernel: FakeKernel) -> None:
    acm = Interface(2, 2, 1, driver="cdc_acm")
    data = Interface(10, number=1, driver="cdc_acm")
    device = appear(kernel, acm, data)
    device.child("tty", "ttyACM0")
    waiting = asyncio.create_task(settled(kernel, device, PATIENT))
    await asyncio.sleep(0.01)
    kernel.source.interface("bind", device, 0)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    kernel.source.interface("bind", device, 1)
    found = await asyncio.wait_for(waiting, 1)
    assert [(child.kind, child.path) for child in found.children] == [("tty", "/dev/ttyACM0")]
    assert found.unsettled == ()


async def test_module_that_loads_late_still_counts(kernel: FakeKernel) -> None:
    device = appear(kernel, replace(STORAGE, driver=None))
    waiting = asyncio.create_task(settled(kernel, device, PATIENT))
    await asyncio.sleep(0.01)
    device.bind_interface(0, "usb-storage")
    device.child("block", "sda")
    kernel.source.interface("bind", device, 0)
    found = await asyncio.wait_for(waiting, 1)
    assert found.unsettled == ()


async def test_interfaces_that_are_announced_are_waited_for(kernel: FakeKernel) -> None:
    device = appear(kernel, Interface(0xFF))
    device.write("bNumInterfaces", b" 2\n")
    found = await settled(kernel, device)
    assert found.unsettled == ("1 interface(s) are not there yet",)


async def test_unconfigured_device_is_reported(kernel: FakeKernel) -> None:
    device = appear(kernel, configuration_value=None)
    waiting = asyncio.create_task(settled(kernel, device))
    await asyncio.sleep(0)
    kernel.source.device("bind", device)
    assert (await waiting).unsettled == ("the device has no configuration",)


async def test_kernel_without_hidraw_is_not_waited_for(kernel: FakeKernel) -> None:
    device = appear(kernel, KEYBOARD)
    device.child("input", "input5", ("event3",))
    waiting = asyncio.create_task(settled(kernel, device, PATIENT))
    await asyncio.sleep(0)
    kernel.source.interface("bind", device, 0)
    found = await asyncio.wait_for(waiting, 1)
    assert [child.kind for child in found.children] == ["input"]
    (kernel.root / "sys/class/hidraw").mkdir()
    waiting = asyncio.create_task(settled(kernel, device))
    await asyncio.sleep(0)
    kernel.source.interface("bind", device, 0)
    assert (await waiting).unsettled == ("interface 10-1:1.0 (usbhid) has no hidraw node yet",)


async def test_device_that_goes_away_is_a_failure(kernel: FakeKernel) -> None:
    device = appear(kernel, STORAGE)
    waiting = asyncio.create_task(settled(kernel, device, PATIENT))
    await asyncio.sleep(0.01)
    device.unplug()
    kernel.source.device("remove", device)
    with pytest.raises(AttachFailed, match="went away"):
        await asyncio.wait_for(waiting, 1)
