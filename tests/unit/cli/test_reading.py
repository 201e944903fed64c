# SPDX-License-Identifier: Apache-2.0
"""Commands that only read: list, ports, slices."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.fakes.sysfs import SysTree
from tests.unit.cli.conftest import Cli
from tests.unit.slices.api_limits import problems


def test_list_json_contract(cli: Cli, tree: SysTree) -> None:
    keyboard, stick = cli("list", "--root", tree.root, "-o", "json").json
    assert stick == {
        "name": "usb-0781-0316-4c53",
        "busID": "1-1.4",
        "vendorID": "0781",
        "productID": "0316",
        "manufacturer": "SanDisk",
        "product": "Ultra\ufffd[31m",
        "serial": "4C53",
        "bcd": "0100",
        "speed": "480",
        "speedClass": "high",
        "class": "00",
        "interfaceClasses": ["08"],
        "isochronous": False,
        "bus": 1,
        "deviceNumber": 3,
        "devicePath": "/dev/bus/usb/001/003",
        "portPath": stick["portPath"],
        "driver": "usb",
        "usable": True,
        "exportable": True,
        "reason": "",
    }
    assert (keyboard["speed"], keyboard["speedClass"]) == ("1.5", "low")
    assert keyboard["exportable"] is False
    assert "1.5 Mbit/s devices stay on their node" in keyboard["reason"]


def test_list_for_people_shows_what_is_offered(cli: Cli, tree: SysTree) -> None:
    result = cli("list", "--root", tree.root)
    assert result.lines[0].split() == ["NAME", "BUSID", "SPEED", "DEVICE", "EXPORTABLE"]
    assert result.lines[2].split()[:4] == ["usb-0781-0316-4c53", "1-1.4", "480M", "0781:0316"]
    assert "\x1b" not in result.out
    assert len(result.lines) == 3  # neither hubs nor the imported device


def test_list_wide_says_why_and_exportable_narrows(cli: Cli, tree: SysTree) -> None:
    wide = cli("list", "--root", tree.root, "-o", "wide")
    assert "1.5 Mbit/s devices stay on their node (forwardLowSpeed is off)" in wide.lines[1]
    only = cli("list", "--root", tree.root, "--exportable", "-o", "json").json
    assert [one["busID"] for one in only] == ["1-1.4"]


def test_list_yaml_keeps_texts_as_texts(cli: Cli, tree: SysTree) -> None:
    result = cli("list", "--root", tree.root, "-o", "yaml")
    assert "productID: '0316'" in result.out
    assert yaml.safe_load(result.out) == cli("list", "--root", tree.root, "-o", "json").json


def test_settings_file_and_environment_reach_the_policy(
    cli: Cli, tree: SysTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tree.root / "config.yaml"
    file.write_text('policy: {rules: [{action: deny, device: "0781:0316", reason: no sticks}]}\n')
    monkeypatch.setenv("USBDRA_FORWARD_LOW_SPEED", "true")
    result = cli("list", "--root", tree.root, "--config", file, "-o", "json").json
    assert [(one["exportable"], one["reason"]) for one in result] == [
        (True, ""), (False, "no sticks"),
    ]  # fmt: skip


def test_an_unknown_rule_field_is_named(cli: Cli, tree: SysTree) -> None:
    file = tree.root / "config.yaml"
    file.write_text("policy: {rules: [{action: deny, serail: x}]}\n")
    result = cli("list", "--root", tree.root, "--config", file)
    assert result.code == 2
    assert "policy.rules[0] has an unknown field 'serail'; did you mean serial?" in result.err


def test_ports_json_contract(cli: Cli, tree: SysTree) -> None:
    result = cli("ports", "--root", tree.root, "-o", "json").json
    assert list(result) == ["ports", "capacity", "free"]
    assert len(result["ports"]) == 16
    assert result["ports"][0] == {
        "port": 0,
        "controller": 0,
        "hub": "high",
        "state": "used",
        "remoteDevice": "1-2",
        "localBusID": "2-1",
    }
    assert result["ports"][8] == {
        "port": 8,
        "controller": 0,
        "hub": "super",
        "state": "free",
        "remoteDevice": None,
        "localBusID": None,
    }
    assert result["capacity"] == {"high": 8, "super": 8}
    assert result["free"] == {"high": 7, "super": 8}


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ("hs  0000 005 000 00000000 000000 0-0", "attaching"),
        ("hs  0000 007 000 00000000 000000 0-0", "error"),
        ("hs  0000 006 003 00010002 4294967295 2-1", "stopping"),
    ],
)
def test_ports_tell_every_state(cli: Cli, tree: SysTree, row: str, state: str) -> None:
    path = tree.sys / "devices/platform/vhci_hcd.0/status"
    lines = path.read_text().splitlines()
    lines[1] = row
    path.write_text("\n".join(lines) + "\n")
    result = cli("ports", "--root", tree.root, "-o", "json").json
    assert result["ports"][0]["state"] == state
    assert result["free"]["high"] == 7
    assert result["capacity"]["high"] == (7 if state == "error" else 8)


def test_ports_used_for_people(cli: Cli, tree: SysTree) -> None:
    assert cli("ports", "--root", tree.root, "--used").lines == [
        "PORT   HUB    STATE   DEVICE   REMOTE",
        "0      high   used    2-1      1-2",
        "high-speed hub: 7 of 8 free",
        "super-speed hub: 8 of 8 free",
    ]


def test_r02_unknown_status_header_is_told_with_its_text(cli: Cli, tree: SysTree) -> None:
    path = tree.sys / "devices/platform/vhci_hcd.0/status"
    path.write_text(path.read_text().replace("local_busid", "local_busid flags", 1))
    result = cli("ports", "--root", tree.root)
    assert result.code == 6
    assert "hub port sta spd dev      sockfd local_busid flags" in result.err


def slices(result: Any) -> list[dict[str, Any]]:
    assert result.code == 0, result.err
    return list(yaml.safe_load_all(result.out))


def test_slices_are_what_the_api_takes(cli: Cli, tree: SysTree) -> None:
    found = slices(cli("slices", "--root", tree.root, "--node", "n1"))
    assert problems(found) == []
    pools = [s["spec"]["pool"]["name"] for s in found]
    assert pools == ["usb-n1", "usblink-n1", "usblocal-n1"]
    hubs = {d["name"]: d.get("capacity") for d in found[1]["spec"]["devices"]}
    assert hubs["vhci-high"]["ports"]["value"] == "7"  # one is in foreign hands
    assert hubs["vhci-super"]["ports"]["value"] == "8"


def test_slices_json_is_a_list_kubectl_applies(cli: Cli, tree: SysTree) -> None:
    result = cli("slices", "--root", tree.root, "--layout", "ports", "--visibility", "Node",
                 "-o", "json").json  # fmt: skip
    assert (result["apiVersion"], result["kind"]) == ("v1", "List")
    assert problems(result["items"]) == []
    assert {s["spec"]["nodeName"] for s in result["items"]} == {"node-a"}
    names = [d["name"] for s in result["items"] for d in s["spec"]["devices"]]
    assert sum(name.startswith("vhci-high-") for name in names) == 7


def test_slices_without_vhci_publish_devices_and_say_why(cli: Cli, tree: SysTree) -> None:
    import shutil

    shutil.rmtree(tree.sys / "devices/platform/vhci_hcd.0")
    result = cli("slices", "--root", tree.root)
    assert [d["name"] for d in slices(result)[1]["spec"]["devices"]] == ["direct"]
    assert "no ports are published: vhci_hcd is not loaded" in result.err


def test_max_ports_caps_each_hub(cli: Cli, tree: SysTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USBDRA_MAX_PORTS", "3")
    found = slices(cli("slices", "--root", tree.root))
    values = [d["capacity"]["ports"]["value"] for d in found[1]["spec"]["devices"][1:]]
    assert values == ["3", "3"]


def test_an_unreadable_device_is_told_and_hides_no_other(cli: Cli, tree: SysTree) -> None:
    (tree.sys / "bus/usb/devices/1-1.2/idVendor").unlink()
    result = cli("list", "--root", tree.root, "-o", "json")
    assert [one["busID"] for one in json.loads(result.out)] == ["1-1.4"]
    assert result.err.startswith("usbdra: device 1-1.2 could not be read:")
