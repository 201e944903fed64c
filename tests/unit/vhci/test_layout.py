# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.sysfs import SysTree
from usbdra.errors import KernelUnsupported
from usbdra.types import Hub
from usbdra.vhci import layout


def test_r01_eleven_controllers_have_their_files_in_number_0(tmp_path: Path) -> None:
    SysTree(tmp_path).vhci(11, high=8, super_=8)
    directory = layout.control_directory(tmp_path)
    assert directory.name == "vhci_hcd.0"
    assert layout.status_files(directory) == 11


def test_r01_module_not_loaded_says_what_to_load(tmp_path: Path) -> None:
    SysTree(tmp_path)
    with pytest.raises(KernelUnsupported, match="modprobe vhci-hcd"):
        layout.control_directory(tmp_path)


@pytest.mark.parametrize("state", ["coming", "going"])
def test_nothing_is_read_of_a_module_that_is_not_whole(tmp_path: Path, state: str) -> None:
    """Kernel 6.1 crashes when a status is read before its controller is made."""
    SysTree(tmp_path).vhci()
    module = tmp_path / "sys/module/vhci_hcd"
    module.mkdir(parents=True, exist_ok=True)
    (module / "initstate").write_text(f"{state}\n")
    with pytest.raises(KernelUnsupported, match="being loaded or unloaded"):
        layout.control_directory(tmp_path)
    (module / "initstate").write_text("live\n")
    assert layout.control_directory(tmp_path).name == "vhci_hcd.0"


def test_directories_that_are_no_controllers_are_passed_over(tmp_path: Path) -> None:
    tree = SysTree(tmp_path)
    tree.vhci()
    (tree.sys / "devices/platform/vhci_hcd.x").mkdir()
    assert layout.control_directory(tmp_path).name == "vhci_hcd.0"


def test_places_by_root_hub_speed_not_by_order(tmp_path: Path) -> None:
    tree = SysTree(tmp_path)
    vhci = tree.vhci(2, first_bus=9)  # usb9 and usb10: text order would put usb10 first
    assert [hub.busid for hub in vhci.hubs[0]] == ["usb9", "usb10"]
    high = layout.place_of(tmp_path, 0, Hub.HIGH, 3)
    assert (high.busid, high.devpath) == ("9-3", "/devices/platform/vhci_hcd.0/usb9/9-3")
    assert layout.place_of(tmp_path, 0, Hub.SUPER, 8).busid == "10-8"
    assert layout.place_of(tmp_path, 1, Hub.SUPER, 1).busid == "12-1"


def test_a_controller_without_such_a_root_hub_is_named(tmp_path: Path) -> None:
    tree = SysTree(tmp_path)
    vhci = tree.vhci()
    vhci.hubs[0][1].unplug()
    with pytest.raises(KernelUnsupported, match="no root hub for super-speed"):
        layout.place_of(tmp_path, 0, Hub.SUPER, 1)
