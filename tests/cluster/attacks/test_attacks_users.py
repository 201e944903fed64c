# SPDX-License-Identifier: Apache-2.0
"""Users of other namespaces, a stolen token, and claims that lost their right to a device in use.

Shown elsewhere, on a control plane alone: each form of a toleration, of ports without a device and
of a named device (tests/api/test_policies_claims.py), what an agent's token may write
(test_policies_agents.py) and be certified for (test_certificates.py). Here real schedulers,
kubelets and agents have them. R48: tests/cluster/test_fault_devices.py.
"""

from __future__ import annotations

from tests.cluster import faults
from tests.cluster.attacks import users
from tests.cluster.attacks.journal import Journal
from tests.cluster.attacks.scene import Scene, assign
from tests.cluster.attacks.thief import Thief
from tests.cluster.attacks.users import STRAY, User, copied
from tests.cluster.claims import USB, VHCI, claim, consumer, link, ties
from tests.cluster.driver import GROUP
from tests.cluster.faults import DISK, Reading, reader

FAILED = "FailedPrepareDynamicResources"


def test_another_namespace_is_given_nothing(scene: Scene, user: User) -> None:
    """By toleration, by a copied config: refused. By CEL, by name: never scheduled."""
    with scene.unchanged():
        for toleration in users.tolerations(scene):
            said = user.refusal(users.tolerant(scene, "tolerant", toleration))
            assert "USB devices of other namespaces are not tolerated from here" in said
        said = user.refusal(copied(scene, "copied"))
        assert "names its device in parameters is made by usbdra controller alone" in said
        for ports in users.ports_alone(scene):
            said = user.refusal(ports)
            assert "is for one link" in said or "needs a request for a USB device" in said
        own = {"key": f"{GROUP}/assigned", "operator": "Equal", "value": user.space.name}
        asked = {
            "by-serial": users.by_serial(scene),
            "by-name": users.by_name(scene),
            "tolerating-own": users.by_serial(scene, tolerations=[own]),
        }
        for name, request in asked.items():
            user.create(claim(name, [request, link()], ties()), consumer(name, name))
        for name in (USB, VHCI):
            user.create(users.extended(f"extended-{name.partition('.')[0]}", name))
        alone = "needs a request for a USB device of its own"
        user.space.event("FailedScheduling", "extended-usb-vhci", alone)
        user.space.pending("extended-usb-devices")
        for name in asked:
            assert "cannot allocate all claims" in user.space.pending(name)
            assert "allocation" not in user.space.claim(name).get("status", {})
    _owner_is_served(scene)


def _owner_is_served(scene: Scene) -> None:
    scene.write(scene.disk_claim("mine"))
    scene.owner.apply(consumer("user", "mine", node="b"))
    scene.owner.run("user")
    assert scene.owner.shell("user", f"sha256sum {DISK}").split()[0] == scene.stick.sha256()
    scene.owner.delete("pod", "user")
    scene.given_back()


def test_what_gets_past_the_first_line_is_refused_where_the_device_is(
    scene: Scene, user: User
) -> None:
    """An administrator's copy of a config, on the device's own node; a class that the policies do
    not know, with a wildcard, on the other. The refusal does not say whose the device is."""
    api = scene.bed.api
    with scene.unchanged():
        scene.write(copied(scene, "copied"), user.space)
        user.space.apply(consumer("local", "copied", node="a"))
        api.apply(users.stray_class())
        try:
            wildcard = {"operator": "Exists"}
            user.create(users.tolerant(scene, "stray", wildcard, STRAY))
            user.create(consumer("remote", "stray", node="b"))
            for pod in ("local", "remote"):
                said = user.space.event(FAILED, pod, f"than {user.space.name}")
                assert f"{scene.device} is assigned to another namespace" in said
                assert scene.owner.name not in said
        finally:
            api.delete(users.stray_class())
        assert user.space.results("stray")["usb"]["device"] == scene.device
        assert scene.b.call("usb.used") == []


def test_a_stolen_token_is_good_for_its_own_node_alone(scene: Scene) -> None:
    """Everything that the accounts on node b can say to the API, about node a."""
    slices, node = scene.published("a"), scene.bed.api.core.read_node("a").metadata.labels
    at_a = scene.allocated("at-a", node="a")
    with Thief(scene, "agent") as thief:
        for item in slices:
            own = "the agent of node b writes slices of its own node and driver alone, not pool"
            for attempt in (thief.empties(item), thief.deletes(item), thief.forges(item)):
                assert f"{own} {item.spec.pool.name}" in attempt
        assert "allocated on another node than b" in thief.reports_on(at_a, scene.device)
        assert 'cannot patch resource "nodes"' in thief.labels("a")
        assert 'cannot get resource "secrets"' in thief.reads_secret("usbdra-ca")
        assert 'cannot patch resource "nodeusbdevices"' in thief.assigns(scene.device)
        denied = "is for node a, the token of node b"
        assert denied in thief.asks_for_certificate("a", scene.uids["a"])
    with Thief(scene, "node-setup") as thief:
        assert "usbdra on node b changes its own node alone, not a" in thief.labels("a")
        assert 'cannot create resource "resourceslices"' in thief.forges(slices[0])
    assert scene.published("a") == slices
    assert scene.bed.api.core.read_node("a").metadata.labels == node


def test_r26_a_device_that_was_taken_away_is_not_attached_again(scene: Scene) -> None:
    """The administrator withdraws it while it is in use, then ends the session where it is."""
    scene.write(scene.disk_claim("mine"))
    scene.owner.apply(reader("user", "mine", "b"))
    scene.owner.run("user")
    reading = Reading(scene.bed, "b", scene.owner, "user")
    reading.wait()
    audit, importer = Journal(scene.a, "agent"), Journal(scene.b, "agent")
    try:
        assign(scene.bed, scene.device, "")
        reading.wait()
        assert reading.failures() == [], "who has it keeps it"
        device = f"/sys/bus/usb/devices/{scene.busid}"
        assert scene.a.call("usb.store", f"{device}/usbip_sockfd", "-1")["errno"] == 0
        importer.said("is not attached again: ")
        why = f"device {scene.device} is not assigned to a namespace, and this cluster requires it"
        assert why in scene.owner.event("Refused", "mine")
        reading.wait("failed")
        faults.wait_not_ready(scene.owner, "mine", "LinkLost")
        assert [line["decision"] for line in audit.decisions(1)] == ["refused"]
        assert scene.b.call("usb.used") == []
        scene.given_back()
        scene.owner.delete("pod", "user")
    finally:
        assign(scene.bed, scene.device, scene.owner.name)


def test_r47_of_claims_that_were_given_one_device_one_gets_it(scene: Scene) -> None:
    """The scheduler's mistake, made by hand: the others wait, and know for whom."""
    mine = scene.given("mine", "user")
    scene.owner.run("user")
    for name, node in (("late", "b"), ("local", "a")):
        scene.given(name, name, node=node)
    with scene.unchanged():
        for name in ("late", "local"):
            scene.owner.event(FAILED, name, f"device {scene.device} is in use by claim {mine}")
        assert len(scene.b.call("usb.used")) == 1
    scene.owner.delete("pod", "local", "--grace-period=1")
    scene.owner.delete("pod", "user", "--grace-period=1")
    scene.owner.run("late")
    assert len(scene.b.call("usb.used")) == 1
    scene.owner.delete("pod", "late", "--grace-period=1")
    scene.given_back()
