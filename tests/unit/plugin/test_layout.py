# SPDX-License-Identifier: Apache-2.0
"""Names in the container: stable links and environment variables."""

from __future__ import annotations

import pytest

from usbdra.plugin.config import DeviceConfig
from usbdra.plugin.layout import container_dirs, environment, node_links
from usbdra.state.claims import ClaimRef, Identity
from usbdra.types import ChildNode, ClaimUid

from .records import DISK, HIDRAW, PARTITION_2, PARTITION_10, REF, TTY, device, held


def names(*children: ChildNode, wanted: tuple[str, ...]) -> dict[str, str]:
    config = DeviceConfig(child_nodes=wanted)
    links = node_links(device(config, held=held(children=children)))
    return {link.name: link.path for link in links}


def test_the_device_itself_comes_first() -> None:
    (link,) = node_links(device())
    assert (link.name, link.path, link.major, link.minor, link.block) == (
        "device",
        "/dev/bus/usb/005/002",
        189,
        513,
        False,
    )


def test_only_kinds_that_were_asked_for() -> None:
    assert list(names(TTY, HIDRAW, DISK, wanted=("tty",))) == ["device", "tty0"]
    defaults = node_links(device(held=held(children=(TTY, HIDRAW, DISK))))
    assert [link.name for link in defaults] == ["device", "hidraw0", "tty0"]


def test_numbers_follow_interfaces_not_todays_nodes() -> None:
    first = ChildNode("tty", "/dev/ttyUSB7", 188, 7, 0)
    second = ChildNode("tty", "/dev/ttyUSB2", 188, 2, 1)
    assert names(second, first, wanted=("tty",)) == {
        "device": "/dev/bus/usb/005/002",
        "tty0": "/dev/ttyUSB7",
        "tty1": "/dev/ttyUSB2",
    }


def test_disks_and_partitions() -> None:
    found = names(PARTITION_10, DISK, PARTITION_2, wanted=("block",))
    assert found == {
        "device": "/dev/bus/usb/005/002",
        "block0": "/dev/sdb",
        "block0-part2": "/dev/sdb2",
        "block0-part10": "/dev/sdb10",
    }
    links = node_links(device(DeviceConfig(child_nodes=("block",)), held=held(children=(DISK,))))
    assert [link.block for link in links] == [False, True]


def test_sound_loses_its_card_number() -> None:
    nodes = [
        ChildNode("sound", f"/dev/snd/{name}", 116, number, 0)
        for number, name in enumerate(("controlC2", "pcmC2D0p", "pcmC2D0c"))
    ]
    assert sorted(names(*nodes, wanted=("sound",))) == [
        "device",
        "sound-control",
        "sound-pcmD0c",
        "sound-pcmD0p",
    ]


def test_video_and_printer_have_their_plain_names() -> None:
    video = ChildNode("video4linux", "/dev/video0", 81, 0, 0)
    printer = ChildNode("usbmisc", "/dev/usb/lp0", 180, 0, 1)
    assert sorted(names(video, printer, wanted=("video", "printer"))) == [
        "device",
        "printer0",
        "video0",
    ]


def test_environment() -> None:
    config = DeviceConfig(child_nodes=("tty", "block"))
    children = (TTY, DISK, PARTITION_2)
    assert environment(device(config, request="my-usb/remote", held=held(children=children))) == [
        "USBDRA_MY_USB_NAME=stick",
        "USBDRA_MY_USB_DIR=/dev/usbdra/my-usb",
        "USBDRA_MY_USB_NODE=/dev/bus/usb/005/002",
        "USBDRA_MY_USB_DEVICE=/dev/usbdra/my-usb/device",
        "USBDRA_MY_USB_BLOCK0=/dev/usbdra/my-usb/block0",
        "USBDRA_MY_USB_BLOCK0_PART2=/dev/usbdra/my-usb/block0-part2",
        "USBDRA_MY_USB_TTY0=/dev/usbdra/my-usb/tty0",
        "USBDRA_MY_USB_VENDOR_ID=0951",
        "USBDRA_MY_USB_PRODUCT_ID=1666",
        "USBDRA_MY_USB_SERIAL=STICK",
    ]


def test_prefix_and_numbered_devices() -> None:
    values = environment(device(DeviceConfig(env_prefix="STICK"), slot=1, slots=2))
    assert values[0] == "STICK_1_NAME=stick"
    assert "STICK_1_DEVICE=/dev/usbdra/usb/1/device" in values


@pytest.mark.parametrize("serial", ["A\nB=1", "\x00", None, ""])
def test_serials_that_no_variable_can_hold_are_left_out(serial: str | None) -> None:
    values = environment(device(held=None, identity=Identity("0951", "1666", serial)))
    assert values == [
        "USBDRA_USB_NAME=stick",
        "USBDRA_USB_VENDOR_ID=0951",
        "USBDRA_USB_PRODUCT_ID=1666",
    ]


def test_directories_tell_claims_of_one_template_apart() -> None:
    assert list(map(str, container_dirs(REF, device()))) == [
        "/dev/usbdra/usb",
        "/dev/usbdra/_claim/stick/usb",
    ]
    ref = ClaimRef("lab", "pod-usb-x7k2", ClaimUid("u"), "left")
    assert str(container_dirs(ref, device())[1]) == "/dev/usbdra/_claim/left/usb"
