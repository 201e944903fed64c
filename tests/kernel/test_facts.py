# SPDX-License-Identifier: Apache-2.0
"""What the kernels really do: each fact the design rests on, on 6.12 and on 6.1.

Results and their consequences are listed in docs/kernel-facts.md.
"""

import errno

import pytest

from tests.bed.bed import Bed
from tests.bed.node import Node
from tests.kernel.conftest import Pair

VHCI = "/sys/devices/platform/vhci_hcd.0"
STUB = "/sys/bus/usb/drivers/usbip-host"
HEADER = "hub port sta spd dev      sockfd local_busid"
FREE, ATTACHING = 4, 5


def store(node: Node, path: str, text: str) -> int:
    """One write; the errno, 0 for success."""
    return int(node.call("usb.store", path, text)["errno"])


def match(node: Node, text: str) -> int:
    return store(node, f"{STUB}/match_busid", text)


def used_rows(node: Node) -> list[tuple[str, int, int]]:
    return [(r["hub"], r["port"], r["state"]) for r in node.call("usb.used")]


def stick(node: Node, serial: str) -> str:
    """Plug in a stick; its bus id."""
    node.call("gadget.storage", serial)
    return str(node.call("usb.wait", serial, child="disks")["busid"])


def test_it_is_the_kernel_we_asked_for(bed: Bed) -> None:
    assert bed["a"].sh("uname -r") == bed["a"].release
    assert bed["a"].release.startswith("6.12.")
    assert bed["b"].sh("uname -r") == bed["b"].release
    assert bed["b"].release.startswith("6.1.")


def test_ports_are_15_and_15_on_8_controllers(node: Node) -> None:
    rows = node.call("usb.rows")
    assert int(node.sh(f"cat {VHCI}/nports")) == 240
    assert [r["port"] for r in rows] == list(range(240))
    for r in rows:
        controller, place = divmod(r["port"], 30)
        assert r["file"] == ("status" if controller == 0 else f"status.{controller}")
        assert r["hub"] == ("hs" if place < 15 else "ss")
        assert r["state"] == FREE
    heads = node.sh(f"head -qn1 {VHCI}/status*").splitlines()
    assert heads == [HEADER] * 8


def test_only_controller_0_has_the_files(node: Node) -> None:
    found = node.sh("ls -d /sys/devices/platform/vhci_hcd.*/attach").split()
    assert found == [f"{VHCI}/attach"]


@pytest.mark.parametrize(
    ("port", "speed", "row"),
    [(0, 5, ("ss", 15)), (17, 3, ("hs", 2)), (30, 3, ("hs", 30)), (45, 2, ("hs", 30))],
)
def test_the_speed_chooses_the_hub(node: Node, port: int, speed: int, row: tuple[str, int]) -> None:
    assert node.call("raw.attach_silent", port, speed) == 0
    assert used_rows(node) == [(*row, ATTACHING)]


@pytest.mark.parametrize("speed", [1, 2, 3])
def test_codes_up_to_480_go_to_the_high_speed_hub(node: Node, speed: int) -> None:
    assert node.call("raw.attach_silent", 3, speed) == 0
    assert used_rows(node) == [("hs", 3, ATTACHING)]


def test_r05_super_plus_is_refused_by_older_kernels(bed: Bed) -> None:
    assert bed["a"].call("raw.attach_silent", 20, 6) == 0
    assert used_rows(bed["a"]) == [("ss", 20, ATTACHING)]
    assert bed["b"].call("raw.attach_silent", 20, 6) == errno.EINVAL


@pytest.mark.parametrize("speed", [0, 7])
def test_other_speed_codes_are_invalid(node: Node, speed: int) -> None:
    assert node.call("raw.attach_silent", 3, speed) == errno.EINVAL


def test_r04_a_taken_port_is_busy(node: Node) -> None:
    assert node.call("raw.attach_silent", 2, 3) == 0
    assert node.call("raw.attach_silent", 2, 3) == errno.EBUSY
    # the same row by the number of another hub: speed counts, not the number
    assert node.call("raw.attach_silent", 17, 3) == errno.EBUSY
    assert node.call("raw.attach_silent", 2, 5) == 0


def test_last_port_works_and_the_next_is_invalid(node: Node) -> None:
    assert node.call("raw.attach_silent", 239, 5) == 0
    assert used_rows(node) == [("ss", 239, ATTACHING)]
    assert node.call("raw.attach_silent", 240, 5) == errno.EINVAL


def test_r07_a_silent_peer_holds_up_its_own_controller_only(pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    for serial, peer in (("near", 3240), ("far", 3241)):
        exporter.call("gadget.keyboard", serial, speed="high")
        device = exporter.call("usb.wait", serial, child="inputs")
        exporter.call("usb.bind", device["busid"])
        exporter.call("raw.export", device["busid"], port=peer)
    devids = {
        serial: device["busnum"] << 16 | device["devnum"]
        for serial in ("near", "far")
        for device in [exporter.call("usb.find", serial)]
    }
    assert importer.call("raw.attach_silent", 0, 3) == 0
    importer.run("sleep 0.5")  # the kernel begins with the silent one
    importer.call("raw.attach", exporter.ip, devids["near"], 1, 3, port=3240)
    importer.call("raw.attach", exporter.ip, devids["far"], 30, 3, port=3241)
    importer.call("usb.wait", "far", imported=True, child="inputs")
    assert importer.call("usb.find", "near", imported=True) is None
    assert importer.call("usb.row", 1)["state"] == ATTACHING
    # the silent peer goes: its neighbour's turn
    importer.call("raw.drop_silent")
    importer.call("usb.wait", "near", imported=True, child="inputs")


@pytest.mark.parametrize("text", ["x", "1 2", "1 2 3", "3 0 0 3"])
def test_bad_attach_texts_are_invalid(node: Node, text: str) -> None:
    # the last one is well formed, but descriptor 0 is no socket
    assert store(node, f"{VHCI}/attach", text) == errno.EINVAL


@pytest.mark.parametrize("text", ["x", "240", "5"])
def test_detach_of_a_free_or_unknown_port_is_invalid(node: Node, text: str) -> None:
    assert store(node, f"{VHCI}/detach", text) == errno.EINVAL


def test_a_closed_peer_frees_the_port(node: Node) -> None:
    assert node.call("raw.attach_silent", 4, 3) == 0
    node.call("raw.drop_silent")
    node.call("usb.wait_row", 4, FREE)


def test_bind_needs_match_and_unbind_first(node: Node) -> None:
    busid = stick(node, "bind")
    assert store(node, f"{STUB}/bind", busid) == errno.EBUSY  # "usb" still has it
    assert match(node, f"add {busid}") == 0
    assert store(node, "/sys/bus/usb/drivers/usb/unbind", busid) == 0
    assert store(node, f"{STUB}/bind", busid) == 0
    device = node.call("usb.find", "bind")
    assert (device["driver"], device["status"], device["interfaces"]) == ("usbip-host", "1", {})


def test_r14_a_second_bind_is_busy_and_harmless(node: Node) -> None:
    busid = stick(node, "twice")
    node.call("usb.bind", busid)
    assert match(node, f"add {busid}") == 0
    assert store(node, f"{STUB}/bind", busid) == errno.EBUSY
    assert node.call("usb.matched").count(busid) == 1
    assert node.call("usb.find", "twice")["status"] == "1"


def test_an_available_device_takes_sockets_only(node: Node) -> None:
    busid = stick(node, "sock")
    node.call("usb.bind", busid)
    path = f"/sys/bus/usb/devices/{busid}/usbip_sockfd"
    for text in ("-1", "999", "junk", "0"):
        assert store(node, path, text) == errno.EINVAL, text
        assert node.call("usb.find", "sock")["status"] == "1"


def test_only_rebind_frees_a_match_entry(node: Node) -> None:
    busid = stick(node, "entry")
    node.call("usb.bind", busid)
    assert store(node, f"{STUB}/unbind", busid) == 0
    assert match(node, f"del {busid}") == 0  # says yes, and keeps it
    assert busid in node.call("usb.matched")
    assert node.call("usb.find", "entry")["driver"] is None
    assert store(node, f"{STUB}/rebind", busid) == 0
    assert busid not in node.call("usb.matched")
    device = node.call("usb.wait", "entry", child="disks")
    assert device["interfaces"] == {f"{busid}:1.0": "usb-storage"}


def test_a_pulled_device_leaves_its_match_entry(node: Node) -> None:
    busid = stick(node, "pulled")
    node.call("usb.bind", busid)
    node.call("gadget.unplug", "pulled")
    node.call("usb.wait", "pulled", gone=True)
    assert match(node, f"del {busid}") == 0
    assert busid in node.call("usb.matched")
    # back at the same place it is the host's again: a match entry alone binds nothing
    node.call("gadget.replug", "pulled")
    device = node.call("usb.wait", "pulled", child="disks")
    assert (device["busid"], device["driver"]) == (busid, "usb")


def test_a_line_feed_becomes_part_of_the_entry(node: Node) -> None:
    # this entry stays for ever: nothing can free it while the module is loaded
    assert match(node, "add 9-1\n") == 0
    assert "9-1\n" in node.call("usb.matched")
    assert match(node, "del 9-1") == errno.ENODEV


def test_rebind_of_a_device_without_entry_is_no_device(node: Node) -> None:
    busid = stick(node, "plain")
    assert store(node, f"{STUB}/rebind", busid) == errno.ENODEV
    assert store(node, f"{STUB}/rebind", "7-7") == errno.ENODEV
    assert store(node, f"{STUB}/unbind", busid) == errno.ENODEV


@pytest.mark.spoils
def test_the_match_table_has_16_entries(bed: Bed) -> None:
    # nothing frees these entries: nodes that go on afterwards have to boot anew
    try:
        for node in bed.nodes.values():
            before = len(node.call("usb.matched"))
            results = [match(node, f"add 9-{100 + i}") for i in range(18 - before)]
            assert results == [0] * (16 - before) + [errno.ENOMEM] * 2
            assert len(node.call("usb.matched")) == 16
            assert match(node, "del 9-100") == 0
            assert len(node.call("usb.matched")) == 16
            assert match(node, "add " + "1" * 40) == errno.EINVAL
            assert match(node, "junk") == errno.EINVAL
    finally:
        if bed.detached:
            for node in bed.nodes.values():
                node.vm.reset()
            for node in bed.nodes.values():
                node.wait_ready()


@pytest.mark.parametrize("speed", ["low", "full", "high", "super"])
def test_emulated_devices_have_the_speed_asked_for(node: Node, speed: str) -> None:
    text = {"low": "1.5", "full": "12", "high": "480", "super": "5000"}[speed]
    make = "gadget.keyboard" if speed in ("low", "full") else "gadget.storage"
    node.call(make, f"dev-{speed}", speed=speed)
    child = "inputs" if speed in ("low", "full") else "disks"
    assert node.call("usb.wait", f"dev-{speed}", child=child)["speed"] == text
