# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from tests.unit.discovery.make import device
from usbdra.discovery import names
from usbdra.discovery.names import Identity, assign_names, cluster_name, serial_name
from usbdra.types import DeviceName

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

# Field report R35: mis-packed CJK, control bytes, a line feed, blanks, empty, missing, very
# long, invalid UTF-8.
STRANGE = [
    "䄱䈲㐳".encode(),
    b"A\x01B\x7f",
    b"AB\nCD",
    b"   ",
    b"",
    None,
    b"X" * 126,
    b"\xff\xfe\x80abc",
]


def test_name_from_serial() -> None:
    naming = assign_names([device(b"4C5300")], node="a")
    assert list(naming.names.values()) == ["usb-0781-5581-4c5300"]
    assert naming.ambiguous == frozenset()


def test_r31_same_serial_twice_goes_by_port() -> None:
    twins = [device(b"0001", port="1.1"), device(b"0001", port="1.2")]
    naming = assign_names(twins, node="a")
    assert sorted(naming.names.values()) == [
        "usb-0781-5581-port-1-1-" + names._hash(b"a\0pci-0000:00:14.0-usb2-0:1.1", 8),
        "usb-0781-5581-port-1-2-" + names._hash(b"a\0pci-0000:00:14.0-usb2-0:1.2", 8),
    ]
    assert naming.ambiguous == {Identity("0781", "5581", b"0001")}


def test_r31_once_seen_twice_stays_by_port() -> None:
    twins = [device(b"0001", port="1.1"), device(b"0001", port="1.2")]
    both = assign_names(twins, node="a")
    alone = assign_names(twins[:1], node="a", ambiguous=both.ambiguous)
    assert alone.names[twins[0].syspath] == both.names[twins[0].syspath]


def test_r31_name_in_use_stays_when_a_twin_comes() -> None:
    first, second = device(b"0001", port="1"), device(b"0001", port="2")
    held = {first.syspath: DeviceName("usb-0781-5581-0001")}
    naming = assign_names([first, second], node="a", held=held)
    assert naming.names[first.syspath] == "usb-0781-5581-0001"
    assert naming.names[second.syspath].startswith("usb-0781-5581-port-2-")


def test_r31_pair_without_serial_has_two_names() -> None:
    pair = [device(None, port="1.1"), device(None, port="1.2")]
    assert len(set(assign_names(pair, node="a").names.values())) == 2


def test_r31_same_serial_on_two_nodes() -> None:
    name = serial_name(Identity("10c4", "ea60", b"0001"))
    assert cluster_name(name, "b", taken_by=None) == name
    assert cluster_name(name, "a", taken_by="a") == name
    other = cluster_name(name, "b", taken_by="a")
    assert other == "usb-10c4-ea60-0001-" + names._hash(b"b", 6)
    longest = DeviceName("x" * 63)
    assert LABEL.fullmatch(cluster_name(longest, "b", taken_by="a"))


def test_r31_port_name_says_nothing_on_another_node() -> None:
    lone = device(None)
    assert names.port_name(lone, "a") != names.port_name(lone, "b")


def test_r33_name_survives_reboot_port_and_node() -> None:
    before = device(b"4C5300", port="4", devnum=5)
    after = [device(b"4C5300", port="4", devnum=2), device(b"4C5300", port="9", busnum=3)]
    expected = assign_names([before], node="a").names[before.syspath]
    for moved in after:
        for node in ("a", "b"):
            assert assign_names([moved], node=node).names[moved.syspath] == expected


def test_r35_strange_serials_give_distinct_labels() -> None:
    devices = [device(raw, port=f"{i + 1}") for i, raw in enumerate(STRANGE)]
    naming = assign_names(devices, node="a").names
    assert len(set(naming.values())) == len(devices)
    assert all(LABEL.fullmatch(name) for name in naming.values())
    by_port = [naming[d.syspath] for d in devices if names.identity_of(d) is None]
    assert len(by_port) == 3
    assert all("-port-" in name for name in by_port)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"ABC", b"abc"),
        (b"A-B", b"A_B"),
        (b"A B", b"A-B"),
        (b"AB", b"AB\n"),
        (b"\xff", b"\xfe"),
        (b"X" * 126, b"X" * 125),
        (b"PORT-1", b"PORT_1"),
    ],
)
def test_r35_serials_that_differ_never_share_a_name(one: bytes, two: bytes) -> None:
    assert serial_name(Identity("0781", "5581", one)) != serial_name(Identity("0781", "5581", two))


def test_r35_a_serial_cannot_spell_the_hash_of_another() -> None:
    strange = b"\xff\xfe"
    forged = names._hash(strange, 10).upper().encode()
    assert serial_name(Identity("0781", "5581", strange)) != serial_name(
        Identity("0781", "5581", forged)
    )


@settings(max_examples=examples(200))
@given(st.lists(st.binary(max_size=130), min_size=2, max_size=6, unique=True))
def test_r35_any_bytes(serials: list[bytes]) -> None:
    devices = [device(raw, port=f"{i + 1}") for i, raw in enumerate(serials)]
    found = assign_names(devices, node="a").names
    assert len(set(found.values())) == len(serials)
    assert all(LABEL.fullmatch(name) for name in found.values())


def test_a_held_name_of_another_device_is_not_taken_over() -> None:
    now = device(b"4C5300")
    held = {now.syspath: DeviceName("usb-1a6e-089a-port-4-00000000")}
    assert assign_names([now], node="a", held=held).names[now.syspath] == "usb-0781-5581-4c5300"


def test_r37_root_hubs_of_one_controller_are_told_apart() -> None:
    boot = {"usb1": False, "usb2": True}
    swapped = {"usb1": True, "usb2": False}
    assert names.root_hub_label("usb1", boot) == "usb2-0"
    assert names.root_hub_label("usb2", boot) == "usb3-0"
    assert names.root_hub_label("usb2", swapped) == "usb2-0"
    alike = {"usb3": False, "usb11": False}
    assert names.root_hub_label("usb3", alike) == "usb2-0"
    assert names.root_hub_label("usb11", alike) == "usb2-1"
    assert names.root_hub_label("usb7", alike) == "usb2-0"


@pytest.mark.parametrize(
    ("syspath", "expected"),
    [
        (
            "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.4",
            ("/sys/devices/pci0000:00/0000:00:14.0", "usb1", "1.4"),
        ),
        (
            "/sys/devices/platform/vhci_hcd.0/usb5",
            ("/sys/devices/platform/vhci_hcd.0", "usb5", ""),
        ),
        ("/sys/bus/usb/devices/1-4", None),
    ],
)
def test_place(syspath: str, expected: tuple[str, str, str] | None) -> None:
    assert names.place_of(syspath) == expected


def test_controller_names() -> None:
    assert names.controller_name("/sys/devices/pci0000:00/0000:00:14.0") == "pci-0000:00:14.0"
    assert names.controller_name("/sys/devices/platform/dummy_hcd.1") == "platform-dummy_hcd.1"


def test_port_paths() -> None:
    assert names.port_path("pci-0000:00:14.0", "usb2-0", "1.4") == "pci-0000:00:14.0-usb2-0:1.4"
    assert names.port_path("pci-0000:00:14.0", "usb3-0", "") == "pci-0000:00:14.0-usb3-0"


def test_deep_port_chain_is_still_a_label() -> None:
    deep = device(None, port="1.10.11.12.13.14.15.16.17.18")
    name = names.port_name(deep, "a")
    assert LABEL.fullmatch(name)
    assert name != names.port_name(device(None, port="1.10.11.12.13.14.15.16.17.19"), "a")
