# SPDX-License-Identifier: Apache-2.0
"""The life of a device and of its assignment, step by step on a cluster in memory."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.controller.cluster import Cluster
from tests.unit.controller.make import CONTRACT, STICK, device
from usbdra.controller.acts import Apply, What
from usbdra.controller.names import own_name
from usbdra.types import NodeName


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.set_node("a", True)
    made.set_node("b", True)
    made.add_namespace("lab")
    made.add_namespace("office")
    made.plug(device())
    made.settle()
    return made


def test_a_plug_makes_an_object_with_all_attributes_in_two_writes(cluster: Cluster) -> None:
    assert len(cluster.writes) == 2
    status = cluster.get(What.NODE_DEVICE, STICK)["status"]
    assert status["nodeName"] == "a"
    assert status["attributes"] == {
        "name": STICK, "nodeName": "a", "vendorID": "0951", "productID": "1666", "bcd": "0110",
        "manufacturer": "Kingston", "product": "DataTraveler 3.0", "serial": "ABC", "speed": 5000,
        "bus": "2", "deviceNumber": "5", "devicePath": "/dev/bus/usb/002/005", "major": 189,
        "minor": 132,
    }  # fmt: skip
    assert [c["type"] for c in status["conditions"]] == ["Ready", "Assigned", "Attached"]
    assert cluster.condition(STICK, "Ready") == ("True", "Ready", "plugged into node a at 2-1")
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "Available")
    assert cluster.condition(STICK, "Attached")[:2] == ("False", "Available")


def test_nothing_changes_nothing_is_written_and_a_restart_neither(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    written = len(cluster.writes)
    cluster.plug(device())
    cluster.restart()
    cluster.settle()
    assert len(cluster.writes) == written


def test_an_assignment_makes_device_claim_and_template(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    for what in (What.DEVICE, What.CLAIM, What.TEMPLATE):
        assert cluster.find(what) == [("lab", STICK)]
    assert cluster.condition(STICK, "Assigned") == (
        "True", "Assigned", "namespace lab may use the device",
    )  # fmt: skip
    shown = cluster.get(What.DEVICE, STICK, "lab")["status"]
    assert [c["type"] for c in shown["conditions"]] == ["Ready", "Attached"]
    assert shown["attributes"] == cluster.get(What.NODE_DEVICE, STICK)["status"]["attributes"]
    owner = cluster.get(What.DEVICE, STICK, "lab")["metadata"]["uid"]
    claim = cluster.get(What.CLAIM, STICK, "lab")
    assert [o["uid"] for o in claim["metadata"]["ownerReferences"]] == [owner]


def test_an_assignment_is_six_writes(cluster: Cluster) -> None:
    """The namespace and the steps are one status, the end another: none for each step."""
    cluster.writes.clear()
    cluster.assign(STICK, "lab")
    cluster.settle()
    done = [(act.what, getattr(act, "subresource", "")) for act in cluster.writes]
    assert Counter(done) == {
        (What.NODE_DEVICE, "status"): 2,
        (What.DEVICE, ""): 1,
        (What.DEVICE, "status"): 1,
        (What.CLAIM, ""): 1,
        (What.TEMPLATE, ""): 1,
    }


def test_the_namespace_is_on_record_before_anything_is_made_in_it(cluster: Cluster) -> None:
    cluster.writes.clear()
    cluster.assign(STICK, "lab")
    cluster.settle()
    kinds = [
        "status" if act.subresource else act.what.value
        for act in cluster.writes
        if isinstance(act, Apply)
    ]
    assert kinds[:2] == ["status", "USBDevice"]
    uid = cluster.namespaces["lab"].uid
    given = cluster.get(What.NODE_DEVICE, STICK)["status"]["assignment"]
    assert given == {"namespace": "lab", "namespaceUID": uid}


def test_use_is_shown_as_the_agents_report_it(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.use("lab", STICK, ("p",))
    cluster.settle()
    assert cluster.condition(STICK, "Attached") == (
        "False", "Available", f"given to pod lab/p (claim lab/{STICK}), and not attached yet",
    )  # fmt: skip
    for ready, reason, shown in (
        (True, "Attached", ("True", "AttachedToPod")),
        (False, "LinkLost", ("False", "LinkLost")),
        (False, "NoFreeUSBIPPort", ("False", "NoFreeUSBIPPort")),
    ):
        cluster.use("lab", STICK, ("p",), ready=ready, reason=reason)
        cluster.settle()
        assert cluster.condition(STICK, "Attached")[:2] == shown
        assert cluster.condition(STICK, "Attached", "lab")[:2] == shown
    cluster.release("lab", STICK)
    cluster.settle()
    assert cluster.condition(STICK, "Attached") == ("False", "Available", "nobody uses the device")


def test_a_device_held_for_a_virtual_machine_says_so(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.attach("lab", "x", STICK, holder="holder", virtualMachine="vm")
    cluster.use("lab", STICK, ("holder",), ready=True)
    cluster.settle()
    assert cluster.condition(STICK, "Attached") == (
        "True",
        "AttachedToVirtualMachine",
        f"virtual machine lab/vm (claim {STICK}): as said",
    )
    cluster.delete(What.ATTACHMENT, "x", "lab")
    cluster.settle()
    assert cluster.condition(STICK, "Attached")[:2] == ("True", "AttachedToPod")


def test_a_device_held_for_a_running_pod_says_so(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.attach("lab", "x", STICK, holder="holder", pod="app")
    cluster.use("lab", STICK, ("holder",), ready=True)
    cluster.settle()
    assert cluster.condition(STICK, "Attached") == (
        "True",
        "AttachedToPod",
        f"pod lab/app (claim {STICK}): as said",
    )
    cluster.delete(What.ATTACHMENT, "x", "lab")
    cluster.settle()
    assert cluster.condition(STICK, "Attached")[:2] == ("True", "AttachedToPod")


def test_a_change_of_use_costs_two_writes(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.writes.clear()
    cluster.use("lab", STICK, ("p",), ready=True)
    cluster.settle()
    assert [act.what for act in cluster.writes] == [What.NODE_DEVICE, What.DEVICE]


def test_a_pulled_device_keeps_its_assignment_and_its_claims(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.pull("a", STICK)
    cluster.settle()
    assert cluster.condition(STICK, "Ready")[:2] == ("False", "NotFound")
    assert cluster.condition(STICK, "Ready", "lab")[:2] == ("False", "NotFound")
    assert cluster.condition(STICK, "Assigned")[:2] == ("True", "Assigned")
    cluster.wait(100_000)
    cluster.settle()
    assert cluster.find(What.CLAIM) == [("lab", STICK)]
    cluster.plug(device(deviceNumber=9))
    cluster.settle()
    assert cluster.condition(STICK, "Ready")[:2] == ("True", "Ready")
    assert cluster.get(What.NODE_DEVICE, STICK)["status"]["attributes"]["deviceNumber"] == "9"


def test_an_absent_device_nobody_was_given_goes_after_the_grace_time(cluster: Cluster) -> None:
    cluster.pull("a", STICK)
    cluster.settle()
    cluster.wait(599)
    cluster.settle()
    assert cluster.find(What.NODE_DEVICE) == [("", STICK)]
    cluster.restart()
    cluster.wait(1)
    cluster.settle()
    assert cluster.find(What.NODE_DEVICE) == []


def test_r59_a_node_that_is_gone_or_not_ready_is_said(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.set_node("a", False)
    cluster.settle()
    assert cluster.condition(STICK, "Ready") == ("False", "NotReady", "node a is not ready")
    cluster.pull("a", STICK)
    cluster.set_node("a", None)
    cluster.settle()
    assert cluster.condition(STICK, "Ready") == ("False", "NotFound", "node a is gone")
    cluster.set_node("a", True)
    cluster.plug(device())
    cluster.settle()
    assert cluster.condition(STICK, "Ready")[:2] == ("True", "Ready")
    assert cluster.condition(STICK, "Assigned")[:2] == ("True", "Assigned")


def test_withdrawal_of_an_unused_device_leaves_nothing(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.assign(STICK, "")
    cluster.settle()
    assert (
        cluster.find(What.DEVICE) == cluster.find(What.CLAIM) == cluster.find(What.TEMPLATE) == []
    )
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "Available")
    assert "assignment" not in cluster.get(What.NODE_DEVICE, STICK)["status"]


def test_a_move_waits_for_the_pods_that_use_the_device(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.use("lab", STICK, ("p",), ready=True)
    cluster.settle()
    cluster.assign(STICK, "office")
    cluster.settle()
    waits = ("False", "InProgress", "pods of namespace lab still use it: p")
    assert cluster.condition(STICK, "Assigned") == waits
    assert cluster.condition(STICK, "Assigned", "lab") == waits
    assert cluster.condition(STICK, "Attached")[:2] == ("True", "AttachedToPod")
    assert cluster.find(What.DEVICE) == [("lab", STICK)]
    assert cluster.find(What.TEMPLATE) == []
    assert "deletionTimestamp" in cluster.get(What.CLAIM, STICK, "lab")["metadata"]
    assert cluster.killed == []
    cluster.restart()
    cluster.settle()
    cluster.release("lab", STICK)
    cluster.settle()
    for what in (What.DEVICE, What.CLAIM, What.TEMPLATE):
        assert cluster.find(what) == [("office", STICK)]
    assert cluster.condition(STICK, "Assigned")[:2] == ("True", "Assigned")


def test_with_force_the_pods_are_deleted(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.use("lab", STICK, ("p", "q"), ready=True)
    cluster.settle()
    cluster.assign(STICK, "office", force=True)
    cluster.settle()
    assert cluster.killed == ["p", "q"]
    assert cluster.find(What.DEVICE) == [("office", STICK)]


def test_a_namespace_made_again_does_not_inherit_the_device(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.remove_namespace("lab")
    cluster.add_namespace("lab")
    cluster.restart()
    cluster.settle()
    assert cluster.get(What.NODE_DEVICE, STICK)["spec"]["assignedNamespace"] == ""
    assert cluster.find(What.DEVICE) == []
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "Available")
    cluster.assign(STICK, "lab")
    cluster.settle()
    assert cluster.condition(STICK, "Assigned")[:2] == ("True", "Assigned")


def test_an_assignment_to_a_namespace_that_is_not_there_waits_for_it(cluster: Cluster) -> None:
    cluster.assign(STICK, "later")
    cluster.settle()
    assert cluster.condition(STICK, "Assigned") == (
        "False", "InProgress", "waits for namespace later, which does not exist",
    )  # fmt: skip
    cluster.add_namespace("later")
    cluster.settle()
    assert cluster.find(What.DEVICE) == [("later", STICK)]


def test_a_deleted_object_ends_its_assignment_in_order_and_comes_back(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    cluster.use("lab", STICK, ("p",), ready=True)
    cluster.delete(What.NODE_DEVICE, STICK)
    cluster.settle()
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "InProgress")
    cluster.release("lab", STICK)
    cluster.settle()
    assert cluster.find(What.DEVICE) == []
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "Available")


def test_what_a_namespace_deletes_by_itself_is_made_again(cluster: Cluster) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    for what in (What.DEVICE, What.CLAIM, What.TEMPLATE):
        cluster.delete(what, STICK, "lab")
        cluster.settle()
        for kind in (What.DEVICE, What.CLAIM, What.TEMPLATE):
            assert cluster.find(kind) == [("lab", STICK)]
    assert cluster.condition(STICK, "Assigned")[:2] == ("True", "Assigned")


def test_somebody_elses_claim_in_the_way_is_left_alone_and_named(cluster: Cluster) -> None:
    cluster.use("lab", STICK, ())
    before = cluster.get(What.CLAIM, STICK, "lab")["metadata"]["uid"]
    cluster.assign(STICK, "lab")
    cluster.settle()
    assert cluster.condition(STICK, "Assigned") == (
        "False",
        "InProgress",
        f"ResourceClaim lab/{STICK} is somebody else's; rename it or delete it",
    )
    cluster.assign(STICK, "")
    cluster.settle()
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "InProgress")
    cluster.release("lab", STICK)
    cluster.settle()
    assert cluster.get(What.CLAIM, STICK, "lab")["metadata"]["uid"] == before
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "Available")


def test_r69_a_device_with_a_serial_takes_its_assignment_along_to_another_node(
    cluster: Cluster,
) -> None:
    cluster.assign(STICK, "lab")
    cluster.settle()
    hashes = CONTRACT.hash_key
    before = cluster.get(What.CLAIM, STICK, "lab")["metadata"]["annotations"][hashes]
    cluster.use("lab", STICK, ("p",), ready=True)
    cluster.pull("a", STICK)
    cluster.settle()
    cluster.plug(device("b"))
    cluster.settle()
    assert cluster.get(What.NODE_DEVICE, STICK)["status"]["nodeName"] == "b"
    assert cluster.condition(STICK, "Assigned")[:2] == ("False", "InProgress")
    cluster.release("lab", STICK)
    cluster.settle()
    after = cluster.get(What.CLAIM, STICK, "lab")["metadata"]["annotations"][hashes]
    assert after != before
    assert cluster.condition(STICK, "Assigned")[:2] == ("True", "Assigned")


def test_r31_two_nodes_with_a_device_of_one_name_never_swap_them(cluster: Cluster) -> None:
    other = own_name(STICK, NodeName("b"))
    cluster.assign(STICK, "lab")
    cluster.plug(device("b"))
    cluster.settle()
    assert cluster.find(What.NODE_DEVICE) == [("", STICK), ("", other)]
    cluster.pull("a", STICK)
    cluster.settle()
    assert cluster.get(What.NODE_DEVICE, other)["status"]["nodeName"] == "b"
    assert cluster.condition(STICK, "Ready")[:2] == ("False", "NotFound")
    cluster.restart()
    cluster.plug(device("a"))
    cluster.settle()
    assert cluster.get(What.NODE_DEVICE, STICK)["status"]["nodeName"] == "a"
    assert cluster.find(What.DEVICE) == [("lab", STICK)]


def test_a_device_of_a_host_outside_has_no_node_and_says_its_host(cluster: Cluster) -> None:
    far = device("outside/pi", "usb-1234-5678-pi")
    cluster.set_node("outside/pi", True)
    cluster.plug(far)
    cluster.settle()
    status = cluster.get(What.NODE_DEVICE, far.name)["status"]
    assert "nodeName" not in status
    assert "nodeName" not in status["attributes"]
    assert status["host"] == "pi"
    assert cluster.condition(far.name, "Ready") == (
        "True", "Ready", "plugged into host pi at 2-1",
    )  # fmt: skip
    cluster.set_node("outside/pi", False)
    cluster.settle()
    assert cluster.condition(far.name, "Ready") == ("False", "NotReady", "host pi does not answer")
    cluster.restart()  # what is on record names the host, and not a node of its name
    cluster.pull("outside/pi", far.name)
    cluster.set_node("pi", True)
    cluster.settle()
    assert cluster.condition(far.name, "Ready")[2].endswith("it was last plugged into host pi")
    cluster.set_node("outside/pi", None)
    cluster.settle()
    assert cluster.condition(far.name, "Ready") == ("False", "NotFound", "host pi is gone")


def test_an_assignment_of_a_device_outside_makes_a_claim_for_a_port(cluster: Cluster) -> None:
    far = device("outside/pi", "usb-1234-5678-pi")
    cluster.set_node("outside/pi", True)
    cluster.plug(far)
    cluster.settle()
    cluster.assign(far.name, "lab")
    cluster.settle()
    assert cluster.condition(far.name, "Assigned")[:2] == ("True", "Assigned")
    spec = cluster.get(What.CLAIM, far.name, "lab")["spec"]["devices"]
    (selector,) = spec["requests"][0]["exactly"]["selectors"]
    assert '.node == "outside/pi"' in selector["cel"]["expression"]
    cluster.use("lab", far.name, ("p",), node="outside/pi", device=far.name, ready=True)
    cluster.settle()
    assert cluster.condition(far.name, "Attached")[:2] == ("True", "AttachedToPod")
