# SPDX-License-Identifier: Apache-2.0
"""Any sequence of what people, nodes and crashes do, and what must hold after each.

The invariants of the cluster's objects: an object for each device, none of it where it was not
given, nothing taken from under a pod, objects and facts agree, nothing left over.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.searching import examples
from tests.unit.controller.cluster import GRACE, Cluster
from tests.unit.controller.make import CONTRACT, device
from usbdra.controller import templates
from usbdra.controller.acts import What

NODES = ("a", "b")
SPACES = ("lab", "office")
DEVICES = ("usb-0951-1666-abc", "usb-046d-c077-port-1-0a0b0c0d")


ALL = 10_000
ACTS = st.sampled_from([ALL, ALL, ALL, 0, 1, 2, 3])
"""How far the controller comes before the next thing happens."""
CRASH = st.sampled_from([False, False, True])


class Devices(RuleBasedStateMachine):
    """Each rule changes the cluster, lets the controller do some acts, and may crash it."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        for node in NODES:
            self.cluster.set_node(node, True)
        for space in SPACES:
            self.cluster.add_namespace(space)
        self.cluster.plug(device("a", DEVICES[0]))
        self.cluster.settle()
        self.cluster.assign(DEVICES[0], SPACES[0])
        self.cluster.settle()

    def goes_on(self, acts: int, crash: bool) -> None:
        """The controller works; whatever was done so far, the end is the same."""
        self.cluster.settle(acts)
        if crash:
            self.cluster.restart()
        if acts == ALL:
            self.cluster.settle()
            self.every_device_has_one_object()
            self.namespaces_have_what_they_were_given()
            self.objects_say_what_is_the_case()
            written = len(self.cluster.writes)
            self.cluster.restart()
            self.cluster.settle()
            assert len(self.cluster.writes) == written, self.cluster.writes[written:]

    @rule(
        node=st.sampled_from(NODES), name=st.sampled_from(DEVICES), number=st.integers(1, 3),
        acts=ACTS, crash=CRASH,
    )  # fmt: skip
    def plug(self, node: str, name: str, number: int, acts: int, crash: bool) -> None:
        self.cluster.plug(device(node, name, deviceNumber=number))
        self.goes_on(acts, crash)

    @rule(node=st.sampled_from(NODES), name=st.sampled_from(DEVICES), acts=ACTS, crash=CRASH)
    def pull(self, node: str, name: str, acts: int, crash: bool) -> None:
        self.cluster.pull(node, name)
        self.goes_on(acts, crash)

    @rule(
        node=st.sampled_from(NODES), ready=st.sampled_from([True, False, None]),
        acts=ACTS, crash=CRASH,
    )  # fmt: skip
    def node(self, node: str, ready: bool | None, acts: int, crash: bool) -> None:
        self.cluster.set_node(node, ready)
        self.goes_on(acts, crash)

    @rule(
        data=st.data(), space=st.sampled_from(["", *SPACES, *SPACES, "nowhere"]),
        force=CRASH, acts=ACTS, crash=CRASH,
    )  # fmt: skip
    def assign(self, data: st.DataObject, space: str, force: bool, acts: int, crash: bool) -> None:
        names = [name for _, name in self.cluster.find(What.NODE_DEVICE)]
        if names:
            self.cluster.assign(data.draw(st.sampled_from(names)), space, force)
            self.goes_on(acts, crash)

    @rule(
        data=st.data(), pods=st.sets(st.sampled_from(["p", "q"]), min_size=1),
        ready=st.sampled_from([None, True, True, False]), acts=ACTS, crash=CRASH,
    )  # fmt: skip
    def use(
        self, data: st.DataObject, pods: set[str], ready: bool | None, acts: int, crash: bool
    ) -> None:
        """Pods take a shared claim that is not on its way out."""
        free = [
            (space, name)
            for space, name in self.cluster.find(What.CLAIM)
            if "deletionTimestamp" not in self.cluster.get(What.CLAIM, name, space)["metadata"]
        ]
        if not free:
            return
        space, name = data.draw(st.sampled_from(free))
        record = self.cluster.objects.get((What.NODE_DEVICE, "", name), {})
        status = record.get("status", {})
        where, what = status.get("nodeName", "a"), status.get("attributes", {}).get("name", name)
        self.cluster.use(space, name, tuple(sorted(pods)), node=where, device=what, ready=ready)
        self.goes_on(acts, crash)

    @rule(data=st.data(), acts=ACTS, crash=CRASH)
    def release(self, data: st.DataObject, acts: int, crash: bool) -> None:
        claims = self.cluster.find(What.CLAIM)
        if claims:
            self.cluster.release(*data.draw(st.sampled_from(claims)))
            self.goes_on(acts, crash)

    @rule(space=st.sampled_from(SPACES), again=st.booleans(), acts=ACTS, crash=CRASH)
    def namespace(self, space: str, again: bool, acts: int, crash: bool) -> None:
        """A namespace goes, and may be back before the controller looks."""
        if space in self.cluster.namespaces:
            self.cluster.remove_namespace(space)
        else:
            again = True
        if again:
            self.cluster.add_namespace(space)
        self.goes_on(acts, crash)

    @rule(data=st.data(), acts=ACTS, crash=CRASH)
    def delete(self, data: st.DataObject, acts: int, crash: bool) -> None:
        """Somebody deletes an object of ours."""
        if self.cluster.objects:
            found = sorted(self.cluster.objects, key=str)
            what, space, name = data.draw(st.sampled_from(found))
            self.cluster.delete(what, name, space)
            self.goes_on(acts, crash)

    @rule(acts=ACTS, crash=CRASH)
    def time_passes(self, acts: int, crash: bool) -> None:
        self.cluster.wait(GRACE.total_seconds() / 2)
        self.goes_on(acts, crash)

    def every_device_has_one_object(self) -> None:
        plugged = {(node, name) for node, found in self.cluster.plugged.items() for name in found}
        shown: dict[tuple[str, str], str] = {}
        for _, name in self.cluster.find(What.NODE_DEVICE):
            status = self.cluster.get(What.NODE_DEVICE, name)["status"]
            if "absentSince" not in status:
                key = (status["nodeName"], status["attributes"]["name"])
                assert key not in shown, f"{shown[key]} and {name}"
                shown[key] = name
        assert shown.keys() == plugged

    def namespaces_have_what_they_were_given(self) -> None:
        for what in (What.DEVICE, What.CLAIM, What.TEMPLATE):
            for space, name in self.cluster.find(what):
                item = self.cluster.get(what, name, space)
                if what is not What.DEVICE and not templates.is_ours(item, CONTRACT):
                    continue
                wanted = self._wanted(name)
                in_use = bool(self.cluster.objects.get((What.CLAIM, space, name), {}).get("status"))
                assert wanted == space or in_use, f"{what} {space}/{name}, assigned to {wanted!r}"

    def objects_say_what_is_the_case(self) -> None:
        for _, name in self.cluster.find(What.NODE_DEVICE):
            item = self.cluster.get(What.NODE_DEVICE, name)
            status, reason, _ = self.cluster.condition(name, "Assigned")
            space = item["spec"]["assignedNamespace"]
            if status == "True":
                for what in (What.DEVICE, What.CLAIM, What.TEMPLATE):
                    assert (space, name) in self.cluster.find(what)
                given = item["status"]["assignment"]
                assert given["namespaceUID"] == self.cluster.namespaces[space].uid
            elif reason == "Available":
                assert not space
            attached = self.cluster.condition(name, "Attached")[0] == "True"
            uses = self.cluster.world.observe(name, self.cluster.now).uses
            assert attached == any(use.ready for use in uses)

    def _wanted(self, name: str) -> str:
        record = self.cluster.objects.get((What.NODE_DEVICE, "", name), {})
        return str(record.get("spec", {}).get("assignedNamespace", ""))


Devices.TestCase.settings = settings(
    max_examples=examples(30), stateful_step_count=15, deadline=None
)
test_any_sequence = Devices.TestCase
