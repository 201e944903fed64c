# SPDX-License-Identifier: Apache-2.0
"""Any sequence of what people, platforms, kubelets and crashes do to attachments.

After each step: a device has at most one holder, a holder is for a machine's own pod, and what is
asked for is what comes in the end; nothing is left of what is gone, and nothing is written twice.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.searching import examples
from tests.unit.controller.attachcluster import AttachCluster
from tests.unit.controller.make import CONTRACT
from usbdra.controller.acts import What

DEVICES = st.sampled_from(["usb-1", "usb-2"])
MACHINES = st.sampled_from(["vm", "other"])
NODES = st.sampled_from(["a", "b"])
NAMES = st.sampled_from(["one", "two", "three"])
ALL = 10_000
ACTS = st.sampled_from([ALL, ALL, ALL, 0, 1, 2, 3])
CRASH = st.sampled_from([False, False, True])


class Attachments(RuleBasedStateMachine):
    """Each rule changes the cluster, lets the controller do some acts, and may crash it."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = AttachCluster()
        self.pods: dict[str, str] = {}
        self.number = 0
        for device in ("usb-1", "usb-2"):
            self.cluster.assign(device)
        self.cluster.settle()

    def goes_on(self, acts: int, crash: bool) -> None:
        self.cluster.settle(acts)
        self.one_holder_a_device()
        if crash:
            self.cluster.restart()
        if acts == ALL:
            self.cluster.settle()
            self.one_holder_a_device()
            written = len(self.cluster.writes)
            self.cluster.restart()
            self.cluster.settle()
            assert len(self.cluster.writes) == written, self.cluster.writes[written:]

    def one_holder_a_device(self) -> None:
        key, cluster = CONTRACT.device_key, self.cluster
        held = [
            cluster.get(What.CLAIM, name)["metadata"]["labels"][key]
            for name in cluster.names(What.POD)
        ]
        assert max(Counter(held).values(), default=0) <= 1, held

    @rule(name=NAMES, device=DEVICES, machine=MACHINES, acts=ACTS, crash=CRASH)
    def attach(self, name: str, device: str, machine: str, acts: int, crash: bool) -> None:
        if (What.ATTACHMENT, name) not in self.cluster.objects:
            self.cluster.attach(name, machine, device)
        self.goes_on(acts, crash)

    @rule(name=NAMES, acts=ACTS, crash=CRASH)
    def detach(self, name: str, acts: int, crash: bool) -> None:
        if (What.ATTACHMENT, name) in self.cluster.objects:
            self.cluster.delete(What.ATTACHMENT, name)
        self.goes_on(acts, crash)

    @rule(machine=MACHINES, node=NODES, acts=ACTS, crash=CRASH)
    def start(self, machine: str, node: str, acts: int, crash: bool) -> None:
        self.number += 1
        pod = f"{machine}-{self.number}"
        self.cluster.run(pod, node, machine)
        self.pods[pod] = machine
        self.goes_on(acts, crash)

    @rule(data=st.data(), gone=st.booleans(), acts=ACTS, crash=CRASH)
    def stop(self, data: st.DataObject, gone: bool, acts: int, crash: bool) -> None:
        if self.pods:
            pod = data.draw(st.sampled_from(sorted(self.pods)))
            if gone:
                self.cluster.gone(pod)
                del self.pods[pod]
            else:
                self.cluster.ends(pod)
        self.goes_on(acts, crash)

    @rule(device=DEVICES, node=NODES, acts=ACTS, crash=CRASH)
    def assign(self, device: str, node: str, acts: int, crash: bool) -> None:
        """Assigned, again, or found on another node."""
        self.cluster.assign(device, node)
        self.goes_on(acts, crash)

    @rule(device=DEVICES, acts=ACTS, crash=CRASH)
    def withdraw(self, device: str, acts: int, crash: bool) -> None:
        self.cluster.withdraw(device)
        self.goes_on(acts, crash)

    @rule(acts=ACTS, crash=CRASH)
    def kubelets(self, acts: int, crash: bool) -> None:
        """Holders that are told to end do, and those that are scheduled start."""
        self.cluster.settle()
        self.cluster.end_holders()
        self.cluster.settle()
        self.cluster.schedule()
        self.goes_on(acts, crash)

    def teardown(self) -> None:
        """All is detached: nothing is left, in a bounded number of steps."""
        cluster = self.cluster
        for name in cluster.names(What.ATTACHMENT):
            cluster.delete(What.ATTACHMENT, name)
        for _ in range(6):
            cluster.settle()
            cluster.end_holders()
        cluster.settle()
        left = {what for what, _ in cluster.objects}
        assert not {What.ATTACHMENT, What.CLAIM, What.POD} & left, cluster.objects.keys()


TestAttachments = Attachments.TestCase
TestAttachments.settings = settings(
    max_examples=examples(20), stateful_step_count=20, deadline=None
)
