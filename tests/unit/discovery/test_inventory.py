# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.fakes.sysfs import KEYBOARD, FakeDevice, Interface, SysTree
from tests.fakes.uevents import child_event, device_event, interface_event
from usbdra.discovery import tree as reader
from usbdra.discovery.inventory import Inventory, scan
from usbdra.discovery.uevent import RESCAN
from usbdra.types import DeviceName, Uevent, UsbDevice


@pytest.fixture
def inventory(tree: SysTree, hs: FakeDevice) -> Inventory:
    inventory = Inventory(tree.root, node="a")
    inventory.resync()
    return inventory


def names(inventory: Inventory) -> dict[str, str]:
    return {str(o.device.busid): str(o.name) for o in inventory.snapshot.offers}


def plug_in(inventory: Inventory, device: FakeDevice) -> FakeDevice:
    inventory.apply([device_event("add", device), interface_event("add", device)])
    return device


def test_add_and_remove(inventory: Inventory, hs: FakeDevice) -> None:
    before = inventory.snapshot
    stick = plug_in(inventory, hs.plug(4, serial=b"4C5300"))
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    stick.unplug()
    inventory.apply([device_event("remove", stick)])
    assert inventory.snapshot == before


def test_events_and_a_fresh_scan_agree(inventory: Inventory, hs: FakeDevice) -> None:
    hub = plug_in(inventory, hs.hub(1))
    for port in (1, 2, 11):
        plug_in(inventory, hub.plug(port, serial=b"0001"))
    plug_in(inventory, hs.plug(10))
    assert inventory.snapshot == scan(hs.tree.root, node="a")


def test_nothing_new_is_the_same_snapshot(inventory: Inventory, hs: FakeDevice) -> None:
    stick = plug_in(inventory, hs.plug(4, serial=b"4C5300"))
    before = inventory.snapshot
    inventory.apply([device_event("change", stick), interface_event("bind", stick)])
    inventory.resync()
    assert inventory.snapshot is before


def test_r16_children_go_with_their_hub(inventory: Inventory, hs: FakeDevice) -> None:
    hub = plug_in(inventory, hs.hub(1))
    inner = plug_in(inventory, hub.hub(2))
    plug_in(inventory, inner.plug(4, serial=b"4C5300"))
    plug_in(inventory, hs.plug(10, serial=b"OTHER"))
    hub.unplug()
    inventory.apply([device_event("remove", hub)])
    assert [d.busid for d in inventory.snapshot.devices] == ["usb1", "1-10"]


def test_r18_only_the_device_itself_comes_and_goes(
    inventory: Inventory, tree: SysTree, hs: FakeDevice
) -> None:
    stick = hs.plug(4, serial=b"4C5300")
    inventory.apply([device_event("add", stick), interface_event("add", stick)])
    inventory.apply([device_event("bind", stick)])
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    tree.usbip_host()
    unbound = interface_event("unbind", stick)
    removed = interface_event("remove", stick)
    stick.bind("usbip-host")
    stick.write("bConfigurationValue", b"\n")
    stick.remove_interfaces()
    inventory.apply([unbound, device_event("unbind", stick), removed, device_event("bind", stick)])
    (offer,) = inventory.snapshot.offers
    assert offer.device.driver == "usbip-host"
    assert (offer.name, offer.exportable) == ("usb-0781-5581-4c5300", True)
    assert [i.class_code for i in offer.device.interfaces] == [8]
    inventory.apply([device_event("offline", stick), device_event("online", stick)])
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    stick.unplug()
    inventory.apply([device_event("unbind", stick)])
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    inventory.apply([device_event("remove", stick)])
    assert names(inventory) == {}


def test_r19_a_device_is_shown_once_and_whole(inventory: Inventory, hs: FakeDevice) -> None:
    late = hs.plug(4, serial=b"4C5300", node=False)
    late.remove("serial")
    plug_in(inventory, late)
    assert names(inventory) == {}
    assert inventory.pending
    late.make_node()
    inventory.apply([device_event("bind", late)])
    assert names(inventory) == {}
    late.write("serial", b"4C5300\n")
    tty = late.child("tty", "ttyUSB0")
    inventory.apply([child_event("add", "tty", late, tty)])
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    assert not inventory.pending


def test_r19_the_last_try_takes_what_is_there(inventory: Inventory, hs: FakeDevice) -> None:
    late = hs.plug(4, serial=b"4C5300")
    late.remove("serial")
    plug_in(inventory, late)
    inventory.retry()
    assert names(inventory)["1-4"].startswith("usb-0781-5581-port-4-")
    late.write("serial", b"4C5300\n")
    inventory.apply([device_event("change", late)])
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}


def test_r20_failures_hide_only_themselves(inventory: Inventory, hs: FakeDevice) -> None:
    plug_in(inventory, hs.plug(4, serial=b"4C5300"))
    broken = hs.plug(5)
    broken.break_("speed")
    plug_in(inventory, broken)
    inventory.retry()
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    assert "Input/output error" in inventory.snapshot.skipped["1-5"]
    broken.write("speed", b"480\n")
    inventory.apply([device_event("change", broken)])
    assert list(names(inventory)) == ["1-4", "1-5"]
    assert inventory.snapshot.skipped == {}


def test_r21_blocked_device_becomes_usable(inventory: Inventory, hs: FakeDevice) -> None:
    blocked = plug_in(inventory, hs.plug(4, authorized=False, configuration_value=None))
    (offer,) = inventory.snapshot.offers
    assert (offer.usable, offer.exportable) == (False, False)
    assert offer.reason == "not authorized on this host (sysfs authorized is 0)"
    blocked.write("authorized", b"1\n")
    blocked.write("bConfigurationValue", b"1\n")
    blocked.add_interface(KEYBOARD)
    inventory.apply([interface_event("add", blocked)])
    assert inventory.snapshot.offers[0].exportable


def test_r22_power_cycled_device_is_shown_as_it_is(
    inventory: Inventory, tree: SysTree, hs: FakeDevice
) -> None:
    tree.usbip_host()
    stick = plug_in(inventory, hs.plug(4, serial=b"4C5300", driver="usbip-host"))
    assert inventory.snapshot.offers[0].device.driver == "usbip-host"
    stick.unplug()
    again = hs.plug(4, serial=b"4C5300")
    inventory.apply([device_event("remove", stick), device_event("add", again)])
    (offer,) = inventory.snapshot.offers
    assert (offer.name, offer.device.driver) == ("usb-0781-5581-4c5300", "usb")


def test_r31_a_twin_renames_both_once_and_for_good(inventory: Inventory, hs: FakeDevice) -> None:
    first = plug_in(inventory, hs.plug(1, serial=b"0001"))
    assert names(inventory) == {"1-1": "usb-0781-5581-0001"}
    second = plug_in(inventory, hs.plug(2, serial=b"0001"))
    both = names(inventory)
    assert both["1-1"].startswith("usb-0781-5581-port-1-")
    assert both["1-2"].startswith("usb-0781-5581-port-2-")
    first.unplug()
    inventory.apply([device_event("remove", first)])
    assert names(inventory) == {"1-2": both["1-2"]}
    kept = inventory.ambiguous
    assert [tuple(i) for i in kept] == [("0781", "5581", b"0001")]
    after_restart = scan(hs.tree.root, node="a", ambiguous=kept)
    assert after_restart.offers[0].name == both["1-2"]
    assert second.busid == "1-2"


def test_r31_a_name_in_use_stays_till_it_is_let_go(inventory: Inventory, hs: FakeDevice) -> None:
    first = plug_in(inventory, hs.plug(1, serial=b"0001"))
    inventory.hold({first.syspath: DeviceName("usb-0781-5581-0001")})
    plug_in(inventory, hs.plug(2, serial=b"0001"))
    assert names(inventory)["1-1"] == "usb-0781-5581-0001"
    inventory.hold({})
    assert names(inventory)["1-1"].startswith("usb-0781-5581-port-1-")


def test_r32_new_face_at_a_held_port(inventory: Inventory, hs: FakeDevice) -> None:
    face = plug_in(inventory, hs.plug(2, vendor="1a6e", product="089a"))
    held = inventory.snapshot.offers[0].name
    inventory.hold({face.syspath: held})
    assert inventory.snapshot.offers[0].exportable
    face.unplug()
    inventory.apply([device_event("remove", face)])
    other = plug_in(inventory, hs.plug(2, vendor="18d1", product="9302"))
    (offer,) = inventory.snapshot.offers
    assert (offer.usable, offer.reason) == (
        False,
        f"identity changed: this port is in use as {held}",
    )
    other.unplug()
    back = hs.plug(2, vendor="1a6e", product="089a")
    inventory.apply([device_event("remove", other), device_event("add", back)])
    assert inventory.snapshot.offers[0].name == held
    assert inventory.snapshot.offers[0].exportable


def test_r33_replug_in_another_port_keeps_the_name(inventory: Inventory, hs: FakeDevice) -> None:
    stick = plug_in(inventory, hs.plug(4, serial=b"4C5300", devnum=5))
    stick.unplug()
    moved = hs.plug(9, serial=b"4C5300", devnum=2)
    inventory.apply([device_event("remove", stick), device_event("add", moved)])
    assert names(inventory) == {"1-9": "usb-0781-5581-4c5300"}
    assert inventory.ambiguous == frozenset()


def test_r34_a_device_that_resets_itself_is_back_under_its_name(
    inventory: Inventory, hs: FakeDevice
) -> None:
    stick = plug_in(inventory, hs.plug(4, serial=b"4C5300"))
    stick.unplug()
    inventory.apply([device_event("remove", stick)])
    assert names(inventory) == {}
    again = plug_in(inventory, hs.plug(4, serial=b"4C5300"))
    assert again.devnum > stick.devnum
    (offer,) = inventory.snapshot.offers
    assert (offer.name, offer.device.devnum) == ("usb-0781-5581-4c5300", again.devnum)


def test_r35_one_strange_serial_does_not_hide_the_others(
    inventory: Inventory, hs: FakeDevice
) -> None:
    for port, raw in enumerate((b"\xff\xfe", b"A\x01B\x7f", b"AB\nCD", b"  ", b"4C5300"), start=1):
        plug_in(inventory, hs.plug(port, serial=raw))
    assert len(set(names(inventory).values())) == 5
    assert names(inventory)["1-5"] == "usb-0781-5581-4c5300"


def test_r38_half_devices_that_come_and_go_leave_no_trace(
    inventory: Inventory, hs: FakeDevice
) -> None:
    before = inventory.snapshot
    for _ in range(40):
        half = hs.plug(3)
        half.remove("idProduct")
        inventory.apply([device_event("add", half)])
        assert inventory.snapshot is before
        half.unplug()
        inventory.apply([device_event("remove", half)])
        assert inventory.snapshot is before
    assert not inventory.pending


def test_r39_a_look_finds_what_no_event_told(inventory: Inventory, hs: FakeDevice) -> None:
    stick = hs.plug(4, serial=b"4C5300")
    inventory.resync()
    assert names(inventory) == {"1-4": "usb-0781-5581-4c5300"}
    stick.unplug()
    inventory.apply([RESCAN])
    assert names(inventory) == {}


def test_r13_a_mount_is_seen_when_it_is_asked_for(
    inventory: Inventory, tree: SysTree, hs: FakeDevice
) -> None:
    disk = plug_in(inventory, hs.plug(3))
    block = disk.child("block", "sda", ("sda1",))
    assert inventory.snapshot.offers[0].exportable
    tree.mount("/data", "8:1", "/dev/sda1")
    inventory.apply([child_event("change", "block", disk, block)])
    assert inventory.snapshot.offers[0].reason == "in use by this host: mounted at /data (sda1)"
    tree.proc("self/mountinfo", "")
    inventory.refresh_holders()
    assert inventory.snapshot.offers[0].exportable


def test_one_event_reads_one_device_once(
    inventory: Inventory, hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    sticks = [plug_in(inventory, hs.plug(port)) for port in range(1, 9)]
    reads: list[str] = []
    real = reader.read

    def read(root: str, syspath: str) -> reader.Reading:
        reads.append(syspath)
        return real(root, syspath)

    monkeypatch.setattr(reader, "read", read)
    changed = sticks[3]
    inventory.apply([device_event("change", changed), interface_event("bind", changed)] * 3)
    assert reads == [changed.syspath]


def test_events_of_other_things_are_nothing(inventory: Inventory) -> None:
    before = inventory.snapshot
    inventory.apply(
        [
            Uevent("add", "/devices/virtual/net/veth0", "net", None),
            Uevent("add", "/module/uas", "module", None),
            Uevent("change", "/bus/usb", "bus", None),
            Uevent("add", "", "", None),
        ]
    )
    assert inventory.snapshot is before


def test_a_root_hub_that_goes_takes_all(inventory: Inventory, hs: FakeDevice) -> None:
    plug_in(inventory, hs.plug(4))
    hs.unplug()
    inventory.apply([device_event("remove", hs)])
    devices: tuple[UsbDevice, ...] = inventory.snapshot.devices
    assert devices == ()


def test_what_a_known_devices_events_say_is_read_once_when_asked(
    tree: SysTree, hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that lets go sends a dozen events: they cost one look, not a dozen."""
    stick = hs.plug(1, serial=b"A1", interfaces=(Interface(8, 6, 80, driver="usb-storage"),))
    inventory = Inventory(tree.root, node="a")
    inventory.resync()
    reads: list[str] = []
    read = reader.read

    def counted(root: str, syspath: str) -> reader.Reading:
        reads.append(syspath)
        return read(root, syspath)

    monkeypatch.setattr(reader, "read", counted)
    stick.bind_interface(0, None)
    for _ in range(6):
        inventory.note([interface_event("unbind", stick), device_event("unbind", stick)])
    assert reads == []
    inventory.refresh()
    assert reads == [f"/sys{stick.devpath}"]
    inventory.refresh()
    assert len(reads) == 1
    assert inventory.snapshot.offers[0].device.interfaces[0].driver is None


def test_what_comes_and_goes_is_known_at_once(tree: SysTree, hs: FakeDevice) -> None:
    inventory = Inventory(tree.root, node="a")
    inventory.resync()
    stick = hs.plug(1, serial=b"A1")
    inventory.note([device_event("add", stick), interface_event("add", stick)])
    assert [o.device.busid for o in inventory.snapshot.offers] == [stick.busid]
    inventory.note([interface_event("unbind", stick), device_event("remove", stick)])
    assert inventory.snapshot.offers == ()
    assert not inventory.stale
