# SPDX-License-Identifier: Apache-2.0
"""The CDI spec of a claim and the metadata files it mounts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from usbdra.plugin import cdi, metadata
from usbdra.plugin.config import DeviceConfig
from usbdra.state.claims import ClaimRef, DeviceRecord, Route
from usbdra.types import ClaimUid

from .claims import DRIVER
from .records import DISK, REF, TTY, UID, device, held, record

ROOT = PurePosixPath("/dev/usbdra/uid-1")


def edits(one: DeviceRecord) -> dict[str, Any]:
    spec = cdi.build_spec(DRIVER, record(one), ROOT)
    found: dict[str, Any] = spec["devices"][0]["containerEdits"]
    return found


def test_one_cdi_device_for_each_allocated_device() -> None:
    spec = cdi.build_spec(DRIVER, record(device(), device(request="two")), ROOT)
    assert spec["cdiVersion"] == "0.6.0"
    assert spec["kind"] == f"{DRIVER}/claim"
    assert [d["name"] for d in spec["devices"]] == ["uid-1-usb-0", "uid-1-two-0"]
    assert cdi.device_id(DRIVER, UID, device()) == f"{DRIVER}/claim=uid-1-usb-0"


def test_r63_owner_and_mode_are_in_the_spec() -> None:
    config = DeviceConfig(uid=107, gid=108, mode=0o660, child_nodes=("tty", "block"))
    nodes = edits(device(config, held=held(children=(TTY, DISK))))["deviceNodes"]
    assert nodes[0] == {
        "path": "/dev/bus/usb/005/002",
        "type": "c",
        "major": 189,
        "minor": 513,
        "fileMode": 0o660,
        "permissions": "rw",
        "uid": 107,
        "gid": 108,
    }
    assert [(n["path"], n["type"], n["fileMode"]) for n in nodes[1:]] == [
        ("/dev/sdb", "b", 0o660),
        ("/dev/ttyACM3", "c", 0o660),
    ]


def test_r63_no_owner_asked_leaves_it_to_the_container_and_never_widens_the_mode() -> None:
    (node,) = edits(device())["deviceNodes"]
    assert node["fileMode"] == 0o660
    assert not {"uid", "gid"} & set(node)


def test_owner_zero_is_kept() -> None:
    (node,) = edits(device(DeviceConfig(uid=0, gid=0)))["deviceNodes"]
    assert (node["uid"], node["gid"]) == (0, 0)


def test_admin_access_only_reads() -> None:
    (node,) = edits(device(route=Route.OBSERVE))["deviceNodes"]
    assert (node["permissions"], node["fileMode"]) == ("r", 0o440)


def test_a_device_that_is_elsewhere_has_no_node_and_no_links() -> None:
    found = edits(device(route=Route.OBSERVE, held=None))
    assert "deviceNodes" not in found
    assert [m["containerPath"].rpartition("/")[2] for m in found["mounts"]] == [
        f"{DRIVER}-metadata.json"
    ]


def test_mounts() -> None:
    assert [(m["hostPath"], m["containerPath"]) for m in edits(device())["mounts"]] == [
        ("/dev/usbdra/uid-1/links/usb", "/dev/usbdra/usb"),
        ("/dev/usbdra/uid-1/links/usb", "/dev/usbdra/_claim/stick/usb"),
        (
            "/dev/usbdra/uid-1/metadata/usb.json",
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/stick/usb/"
            f"{DRIVER}-metadata.json",
        ),
    ]
    assert {tuple(m["options"]) for m in edits(device())["mounts"]} == {
        ("bind", "ro", "nosuid", "noexec")
    }


def test_metadata_of_a_template_claim_is_under_the_pods_own_name() -> None:
    ref = ClaimRef("lab", "pod-usb-x7k2", ClaimUid("u"), "left")
    assert str(metadata.container_path(DRIVER, ref, "usb")).endswith(
        f"/resourceclaimtemplates/left/usb/{DRIVER}-metadata.json"
    )


def test_metadata_stream() -> None:
    one = replace(record(device(request="usb/remote")), ref=replace(REF, pod_claim_name="left"))
    lines = metadata.content(DRIVER, one, "usb").splitlines()
    newest, older = map(json.loads, lines)
    assert newest["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
    assert older == {**newest, "apiVersion": "metadata.resource.k8s.io/v1alpha1"}
    assert newest["kind"] == "DeviceMetadata"
    assert newest["metadata"] == {
        "name": "stick",
        "namespace": "lab",
        "uid": "uid-1",
        "generation": 1,
    }
    assert newest["podClaimName"] == "left"
    assert newest["requests"] == [
        {
            "name": "usb/remote",
            "devices": [
                {
                    "driver": DRIVER,
                    "pool": "usb-a",
                    "name": "stick",
                    "attributes": {
                        "name": {"string": "stick"},
                        "node": {"string": "a"},
                        "vendorID": {"string": "0951"},
                        "productID": {"string": "1666"},
                        "serial": {"string": "STICK"},
                        "busID": {"string": "5-1"},
                        "bus": {"int": 5},
                        "deviceNumber": {"int": 2},
                    },
                }
            ],
        }
    ]


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        (f"{DRIVER}_claim_uid-1.json", "uid-1"),
        (f".{DRIVER}_claim_uid-1.json.new", None),
        (f"{DRIVER}_metadata_uid-1_usb.json", None),
        ("nvidia.json", None),
    ],
)
def test_names_of_spec_files(name: str, uid: str | None) -> None:
    assert cdi.uid_of_file(DRIVER, name) == uid
    if uid:
        assert cdi.file_name(DRIVER, ClaimUid(uid)) == name
