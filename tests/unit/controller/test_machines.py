# SPDX-License-Identifier: Apache-2.0
"""spec.usbDevices of a VirtualMachine: attachments made and deleted, and what is told of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controller.attachcluster import AttachCluster
from tests.unit.controller.make import STICK
from usbdra.controller.acts import What

MOUSE = "usb-046d-c077-port-1-0a0b0c0d"


@pytest.fixture
def cluster() -> AttachCluster:
    made = AttachCluster()
    made.assign()
    made.run("vm-1")
    made.list_devices("vm", STICK)
    made.settle()
    made.schedule(5)
    made.settle()
    return made


def shown(cluster: AttachCluster) -> list[dict[str, Any]]:
    """status.usbDevices, each entry's conditions as their reasons."""
    entries = cluster.get(What.MACHINE, "vm")["status"]["usbDevices"]
    return [
        {**e, "conditions": [c["reason"] for c in e.get("conditions", ())]} for e in entries
    ]  # fmt: skip


def test_a_listed_device_is_attached_and_told(cluster: AttachCluster) -> None:
    (name,) = cluster.names(What.ATTACHMENT)
    made = cluster.get(What.ATTACHMENT, name)
    assert made["spec"] == {"device": STICK, "virtualMachine": {"name": "vm"}}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachine"
    assert shown(cluster) == [
        {
            "name": STICK,
            "attached": True,
            "ready": True,
            "hotplugged": True,
            "address": {"bus": 0, "port": 5},
            "conditions": ["Ready", "AttachedToVirtualMachine"],
        }
    ]


def test_one_that_cannot_be_placed_hides_no_other(cluster: AttachCluster) -> None:
    cluster.list_devices("vm", MOUSE, STICK, STICK)
    cluster.settle()
    first, second = shown(cluster)
    assert first == {
        "name": MOUSE, "attached": False, "ready": False, "hotplugged": False,
        "conditions": ["NotFound", "Available"],
    }  # fmt: skip
    assert (second["name"], second["attached"]) == (STICK, True)


def test_what_is_taken_off_the_list_is_detached_in_order_and_may_come_back(
    cluster: AttachCluster,
) -> None:
    cluster.list_devices("vm")
    cluster.settle()
    assert shown(cluster) == []
    (name,) = cluster.names(What.ATTACHMENT)
    assert cluster.going(What.ATTACHMENT, name)
    cluster.list_devices("vm", STICK)  # before it is out
    cluster.settle()
    assert shown(cluster)[0]["conditions"] == ["Detaching", "AttachedToVirtualMachine"]
    cluster.end_holders()
    cluster.settle()
    cluster.schedule()
    cluster.settle()
    assert shown(cluster)[0]["attached"] is True


def test_a_deleted_machine_takes_its_attachments_along(cluster: AttachCluster) -> None:
    cluster.gone("vm-1")
    cluster.delete(What.MACHINE, "vm")
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert not {What.ATTACHMENT, What.CLAIM, What.POD} & {what for what, _ in cluster.objects}


def test_a_machine_in_deletion_gets_nothing_new(cluster: AttachCluster) -> None:
    item = cluster.get(What.MACHINE, "vm")
    item["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    cluster._store(What.MACHINE, "vm", item | {"spec": {"usbDevices": []}})
    cluster.settle()
    (name,) = cluster.names(What.ATTACHMENT)
    assert not cluster.going(What.ATTACHMENT, name)


def test_attachments_that_people_made_are_left_alone(cluster: AttachCluster) -> None:
    cluster.assign(MOUSE)
    cluster.attach("mine", device=MOUSE)
    cluster.settle()
    assert not cluster.going(What.ATTACHMENT, "mine")
    assert [entry["name"] for entry in shown(cluster)] == [STICK]


def test_a_device_of_another_machine_is_shown_with_the_reason(cluster: AttachCluster) -> None:
    cluster.run("other-1", machine="other")
    cluster.list_devices("other", STICK)
    cluster.settle()
    (entry,) = cluster.get(What.MACHINE, "other")["status"]["usbDevices"]
    assert (entry["attached"], entry["conditions"][0]["reason"]) == (False, "InUse")


def test_nothing_is_written_twice(cluster: AttachCluster) -> None:
    before = len(cluster.writes)
    cluster.restart()
    cluster.settle()
    assert len(cluster.writes) == before
