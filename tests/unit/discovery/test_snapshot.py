# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.fakes.sysfs import FakeDevice, SysTree
from usbdra.discovery.inventory import scan
from usbdra.discovery.policy import Policy
from usbdra.errors import Ambiguous, ConfigError, NotFound, Refused


@pytest.fixture
def sticks(hs: FakeDevice) -> FakeDevice:
    hs.hub(1).plug(4, serial=b"4C5300")
    hs.plug(2, serial=b"0001")
    hs.plug(10, serial=b"0001")
    return hs


def test_found_by_name_busid_and_serial(tree: SysTree, sticks: FakeDevice) -> None:
    snapshot = scan(tree.root, node="a")
    by_name = snapshot.find("usb-0781-5581-4c5300")
    assert by_name.device.busid == "1-1.4"
    assert snapshot.find("1-1.4") is by_name
    assert snapshot.find("4C5300") is by_name


def test_devices_are_in_order_of_place(tree: SysTree, sticks: FakeDevice) -> None:
    snapshot = scan(tree.root, node="a")
    assert [d.busid for d in snapshot.devices] == ["usb1", "1-1", "1-1.4", "1-2", "1-10"]
    assert [o.device.busid for o in snapshot.offers] == ["1-1.4", "1-2", "1-10"]


def test_r31_a_serial_that_two_have_names_both(tree: SysTree, sticks: FakeDevice) -> None:
    snapshot = scan(tree.root, node="a")
    with pytest.raises(Ambiguous) as caught:
        snapshot.find("0001")
    assert caught.value.candidates == tuple(o.name for o in snapshot.offers[1:])
    assert all(snapshot.find(name).name == name for name in caught.value.candidates)


def test_unknown_device_says_what_comes_close(tree: SysTree, sticks: FakeDevice) -> None:
    with pytest.raises(NotFound, match="did you mean usb-0781-5581-4c5300"):
        scan(tree.root, node="a").find("usb-0781-5581-4c5301")
    with pytest.raises(NotFound, match=r"^no device 'zzzzzz' on this node$"):
        scan(tree.root, node="a").find("zzzzzz")


def test_hubs_and_imported_devices_say_why(tree: SysTree, sticks: FakeDevice) -> None:
    tree.vhci(first_bus=5).plug(1, vendor="10c4", product="ea60")
    snapshot = scan(tree.root, node="a")
    with pytest.raises(Refused, match="1-1 is a hub"):
        snapshot.find("1-1")
    with pytest.raises(Refused, match="5-2 is imported"):
        snapshot.find("5-2")


def test_unreadable_device_says_why(tree: SysTree, sticks: FakeDevice) -> None:
    sticks.plug(5).break_("speed")
    with pytest.raises(NotFound, match=r"1-5 could not be read: .*Input/output error"):
        scan(tree.root, node="a").find("1-5")


def test_scan_uses_the_policy(tree: SysTree, sticks: FakeDevice) -> None:
    policy = Policy.from_mapping({"rules": [{"action": "deny", "serial": "4C*"}]})
    offers = scan(tree.root, node="a", policy=policy).offers
    assert [o.exportable for o in offers] == [False, True, True]


def test_r16_only_the_device_is_offered(tree: SysTree, hs: FakeDevice) -> None:
    hs.hub(1).plug(4)
    tree.vhci(first_bus=5).plug(1, vendor="0781", product="5581")
    assert [o.device.busid for o in scan(tree.root, node="a").offers] == ["1-1.4"]


def test_r36_a_long_text_stays_whole_here_and_the_name_is_a_label(
    tree: SysTree, hs: FakeDevice
) -> None:
    hs.plug(1, product_name=b"P" * 67, serial=b"S" * 126)
    (offer,) = scan(tree.root, node="a").offers
    assert offer.device.product == "P" * 67
    assert len(offer.name) <= 63


def test_a_host_without_usb(tree: SysTree) -> None:
    assert scan(tree.root / "nowhere", node="a").devices == ()


def test_ambiguous_is_a_mistake_of_the_caller() -> None:
    assert issubclass(Ambiguous, ConfigError)
    assert Ambiguous("x", ("a", "b")).exit_code == 2
