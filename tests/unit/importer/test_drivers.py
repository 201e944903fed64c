# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.host_drivers import HostDrivers
from tests.fakes.sysfs import FakeDevice, Interface, SysTree
from usbdra.discovery.tree import read_device
from usbdra.errors import AttachFailed, DriverNotRestored
from usbdra.importer.drivers import busid_of, give_back, interface_drivers, keep_off
from usbdra.types import BusId

ACM = Interface(2, 2, 1, driver="cdc_acm")
DATA = Interface(10, 0, 0, number=1, driver="cdc_acm")
STICK = Interface(8, 6, 80, driver="usb-storage")


@pytest.fixture
def files(tmp_path: Path) -> HostDrivers:
    return HostDrivers(tmp_path)


def plug(root: Path, *interfaces: Interface) -> FakeDevice:
    hub = SysTree(root).controller("0000:00:14.0").root_hub(bus=1)
    return hub.plug(3, interfaces=interfaces)


def drivers_now(root: Path, device: FakeDevice) -> dict[str, str]:
    found = read_device(root, f"/sys{device.devpath}")
    assert found is not None
    return interface_drivers(found)


@pytest.mark.parametrize(
    "interfaces", [(STICK,), (ACM, DATA), (STICK, replace(DATA, driver="usbhid"))]
)
def test_drivers_go_and_come_back(
    tmp_path: Path, files: HostDrivers, interfaces: tuple[Interface, ...]
) -> None:
    device = plug(tmp_path, *interfaces)
    before = drivers_now(tmp_path, device)
    assert list(before) == [f"1-3:1.{n}" for n in range(len(interfaces))]
    assert busid_of(before) == BusId("1-3")
    keep_off(tmp_path, before, files)
    assert drivers_now(tmp_path, device) == {}
    keep_off(tmp_path, before, files)  # again after a kill
    give_back(tmp_path, before, files)
    assert drivers_now(tmp_path, device) == before
    files.log.clear()
    give_back(tmp_path, before, files)
    assert files.log == []


def test_a_driver_that_holds_on_is_named(tmp_path: Path, files: HostDrivers) -> None:
    device = plug(tmp_path, STICK)
    files.refuse["unbind"] = errno.EIO
    with pytest.raises(AttachFailed, match=r"usb-storage does not let go of 1-3:1\.0"):
        keep_off(tmp_path, drivers_now(tmp_path, device), files)


def test_a_driver_that_does_not_come_back_is_named(tmp_path: Path, files: HostDrivers) -> None:
    device = plug(tmp_path, STICK)
    before = drivers_now(tmp_path, device)
    keep_off(tmp_path, before, files)
    files.refuse["bind"] = errno.EIO
    with pytest.raises(DriverNotRestored, match=r"1-3:1\.0 got no driver again.*replug"):
        give_back(tmp_path, before, files)
    del files.refuse["bind"]
    give_back(tmp_path, before, files)
    assert drivers_now(tmp_path, device) == before


def test_what_is_gone_needs_no_driver(tmp_path: Path, files: HostDrivers) -> None:
    device = plug(tmp_path, STICK)
    before = drivers_now(tmp_path, device)
    keep_off(tmp_path, before, files)
    files.log.clear()
    loaded = tmp_path / "sys/bus/usb/drivers/usb-storage"
    loaded.rename(tmp_path / "unloaded")
    give_back(tmp_path, before, files)
    (tmp_path / "unloaded").rename(loaded)
    device.unplug()
    give_back(tmp_path, before, files)
    give_back(tmp_path, {}, files)
    assert busid_of({}) is None
    assert files.log == []
