# SPDX-License-Identifier: Apache-2.0
"""Any sequence of what people, nodes, links and crashes do to one device and its sessions.

The controller's decisions on a cluster in memory, the exporting node's real broker and guard on
the fake kernel, over real connections. After each step: at most one session, and only one that its
claim and the device's namespace entitle to; what broker, kernel and records say is the same; a
request gets the device exactly if it should. At the end nothing is left.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from copy import deepcopy
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.fakes.kernel import FakeKernel
from tests.fakes.sysfs import FakeDevice
from tests.fakes.tcp import TcpPair
from tests.searching import examples
from tests.unit.controller.cluster import GRACE, Cluster
from tests.unit.controller.make import CONTRACT, device
from tests.unit.exporter.test_local import driven_by, driver_of, no_records, started
from tests.waiting import until
from usbdra.agent.peers import ClaimGuard
from usbdra.controller.acts import What
from usbdra.errors import DeviceBusy, NotFound, Refused
from usbdra.exporter import fence
from usbdra.exporter.broker import ClaimRef, GrantRequest, Peer
from usbdra.kube import errors
from usbdra.kube.types import Kind, Object
from usbdra.types import ClaimUid, DeviceName, Endpoints, NodeName

NAME = "usb-0781-5581-a1"
HOME = NodeName("a")
OWN = "of-a-pod"
"""A claim that was made of the template: it goes with its pod."""
SPACES = ("lab", "office")
PEERS = {name: Peer(f"10.0.0.{n}", 4242, NodeName(name)) for n, name in enumerate("bc", 2)}
ALL = 10_000
ACTS = st.sampled_from([ALL, ALL, ALL, 0, 1, 2])
MOSTLY = st.sampled_from([True, True, False])
CRASH = st.sampled_from([False, False, True])
NODES = st.sampled_from(sorted(PEERS))


class Sessions(RuleBasedStateMachine):
    """Each rule changes something; the controller then does some acts, and may crash."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(prefix="usbdra-tests-"))
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.kernel = self.wait(self.stack.enter_async_context(FakeKernel(self.folder)))
        self.guard = ClaimGuard(self, CONTRACT.driver, HOME, lambda name: None, self.fence)
        self.cluster = Cluster()
        self.cluster.set_node(HOME, True)
        for space in SPACES:
            self.cluster.add_namespace(space)
        self.claims: dict[str, ClaimRef] = {}
        self.links: list[TcpPair] = []
        self.running: tuple[ClaimRef, str, TcpPair] | None = None
        self.stick = self.kernel.stub.plug(3, serial=b"A1")
        self.plugged = True
        self.cluster.plug(device(HOME, NAME))
        self.begin()
        self.cluster.settle()
        self.cluster.assign(NAME, SPACES[0])
        self.goes_on(ALL, False)
        self.allocate(SPACES[0], NAME, "b")
        self.ask_rightly()
        assert self.running is not None

    def wait(self, work: Any) -> Any:
        return self.runner.run(work)

    def begin(self) -> None:
        """The exporting node's agent starts, from its records and the kernel."""
        self.agent = AsyncExitStack()
        work = started(self.kernel, self.guard.authorise, self.guard.outlived)
        self.broker = self.wait(self.agent.enter_async_context(work))
        self.wait(self.tell(None))

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """The API server, as the guard reads claims from it."""
        found = self.cluster.objects.get((What.CLAIM, namespace or "", name))
        if found is None:
            raise errors.ApiNotFound("GET", 404, "NotFound", name)
        return deepcopy(found)

    def fence(self, name: DeviceName, namespace: str) -> None:
        fence.require(name, namespace, self.assigned(), required=True)

    def assigned(self) -> str | None:
        record = self.cluster.objects.get((What.NODE_DEVICE, "", NAME))
        return None if record is None else record["spec"]["assignedNamespace"]

    def goes_on(self, acts: int, crash: bool) -> None:
        self.cluster.settle(acts)
        if crash:
            self.cluster.restart()
        for space, name in self.cluster.find(What.CLAIM):
            uid = self.cluster.get(What.CLAIM, name, space)["metadata"]["uid"]
            self.claims.setdefault(uid, ClaimRef(space, name, ClaimUid(uid)))
        self.wait(self.quiet())
        self.everybody_says_the_same()
        self.nobody_else_gets_it()
        self.everybody_says_the_same()

    async def tell(self, link: Endpoints | None) -> None:
        """What transport/watch.py tells the broker: of one connection, or to look at all."""
        self.broker.link_ended(link)

    async def quiet(self) -> None:
        """Wait until sessions that have ended are wound up."""
        async with asyncio.timeout(10):
            while self.running is None and (
                self.broker._leases or self.kernel.sockets or not no_records(self.kernel)
            ):
                await asyncio.sleep(0.001)

    def everybody_says_the_same(self) -> None:
        count = int(self.running is not None)
        assert self.kernel.sockets == count
        assert len(self.broker._leases) == count
        assert no_records(self.kernel) is not bool(count)
        if self.running is not None:
            (lease,) = self.broker._leases.values()
            ref, node, _ = self.running
            assert (lease.session.claim, lease.session.node) == (ref, node)
        elif self.plugged:
            self.wait(driven_by(self.stick, "usb"))

    def entitled(self, ref: ClaimRef, node: str) -> bool:
        """By the claim alone: it is there, the same, and was given to that node."""
        claim = self.cluster.objects.get((What.CLAIM, ref.namespace, ref.name))
        if claim is None or claim["metadata"]["uid"] != ref.uid:
            return False
        going = "deletionTimestamp" in claim["metadata"]
        return not going and claim.get("status", {}).get("place") == node

    @rule(
        space=st.sampled_from([*SPACES[:1] * 4, *SPACES, ""]), force=CRASH, acts=ACTS, crash=CRASH
    )
    def assign(self, space: str, force: bool, acts: int, crash: bool) -> None:
        """Assigned, moved or withdrawn; pods that are killed may leave their session behind."""
        if self.assigned() is not None:
            self.cluster.assign(NAME, space, force)
        self.goes_on(acts, crash)

    @rule(data=st.data(), node=NODES, prepares=MOSTLY, acts=ACTS, crash=CRASH)
    def place(self, data: st.DataObject, node: str, prepares: bool, acts: int, crash: bool) -> None:
        """A pod is scheduled: its claim, shared or of its own, is allocated for its node."""
        free = self.free_claims()
        if free:
            self.allocate(*data.draw(st.sampled_from(free)), node)
        self.goes_on(acts, crash)
        if free and prepares:
            self.ask_rightly()

    @rule(node=NODES)
    def pods_everywhere(self, node: str) -> None:
        """Pods take every claim that is free, and their nodes ask."""
        for space, name in self.free_claims():
            self.allocate(space, name, node)
        self.ask_rightly()

    def free_claims(self) -> list[tuple[str, str]]:
        """(namespace, name) of claims that a pod could take; those of templates are made then."""
        shared = self.cluster.find(What.CLAIM)
        free = [
            (space, name)
            for space, name in shared
            if "status" not in self.cluster.get(What.CLAIM, name, space)
        ]
        own = [(space, OWN) for space, _ in self.cluster.find(What.TEMPLATE)]
        return free + [key for key in own if key not in shared]

    def allocate(self, space: str, name: str, node: str) -> None:
        """The scheduler gives the device to a claim, for a pod on this node."""
        self.cluster.use(space, name, ("p",), node=HOME, device=NAME)
        item = deepcopy(self.cluster.get(What.CLAIM, name, space))
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        item["status"]["allocation"]["nodeSelector"] = terms
        item["status"]["place"] = node
        self.cluster._store(What.CLAIM, space, name, item)

    @rule()
    def ask_rightly(self) -> None:
        """Nodes with a claim ask for their device, as at Prepare and after a link broke."""
        for ref in list(self.claims.values()):
            for node in PEERS:
                if self.entitled(ref, node):
                    self.ask(ref, node)
        self.goes_on(0, False)

    def ask(self, ref: ClaimRef, node: str) -> None:
        """One request, which must end as it should."""
        verdict, before = self.verdict(ref, node), self.running
        found = self.wait(self.request(GrantRequest(NAME, ref), PEERS[node]))
        if isinstance(found, TcpPair):
            self.links.append(found)
            self.running = (ref, node, found)
        assert type(found) is verdict, (ref, node, self.assigned(), before, found)
        if isinstance(found, TcpPair) and before is not None:
            assert before[2].peer_sees_end()

    def verdict(self, ref: ClaimRef, node: str) -> type:
        """How a request should end: in a refusal of this kind, or in a link."""
        if not self.plugged:
            return NotFound
        if not self.entitled(ref, node) or self.assigned() != ref.namespace:
            return Refused
        if self.running is not None:
            holder, place, _ = self.running
            if (holder.uid, place) != (ref.uid, node) and self.entitled(holder, place):
                return DeviceBusy
        return TcpPair

    def nobody_else_gets_it(self) -> None:
        """Whoever should not have the device asks for it, and nothing changes."""
        for ref in list(self.claims.values())[-4:]:
            for node in PEERS:
                if self.verdict(ref, node) is not TcpPair:
                    self.ask(ref, node)

    async def request(self, request: GrantRequest, peer: Peer) -> TcpPair | NotFound | Refused:
        """Ask for the device; the link it is used over, or the refusal."""
        try:
            granted = await self.broker.acquire(request, peer)
        except (NotFound, Refused) as error:
            return error
        link = TcpPair()
        await self.broker.hand_over(granted, link.ours)
        link.ours.close()
        return link

    @rule(acts=ACTS)
    def cut(self, acts: int) -> None:
        """The importer detaches, or is gone."""
        if self.running is not None:
            (lease,) = self.broker._leases.values()
            self.running[2].peer.close()
            self.running = None
            self.wait(self.kernel_is_done())
            self.wait(self.tell(lease.session.link))
        self.goes_on(acts, False)

    async def kernel_does(self, what: Callable[[FakeDevice], None]) -> None:
        what(self.stick)

    async def kernel_is_done(self) -> None:
        await until(lambda: not self.kernel.sockets, within=10)

    @rule(data=st.data(), unprepares=st.booleans(), acts=ACTS, crash=CRASH)
    def end(self, data: st.DataObject, unprepares: bool, acts: int, crash: bool) -> None:
        """Pods end; without a kubelet that unprepares their session outlives its claim."""
        claims = self.cluster.find(What.CLAIM)
        if claims:
            space, name = data.draw(st.sampled_from(claims))
            uid = self.cluster.get(What.CLAIM, name, space)["metadata"]["uid"]
            self.cluster.release(space, name)
            if name == OWN and (What.CLAIM, space, name) in self.cluster.objects:
                self.cluster.delete(What.CLAIM, name, space)
            if unprepares and self.running is not None and self.running[0].uid == uid:
                self.cut(acts=0)
        self.goes_on(acts, crash)

    @rule(data=st.data(), acts=ACTS, crash=CRASH)
    def delete(self, data: st.DataObject, acts: int, crash: bool) -> None:
        """Somebody deletes a claim, a template, a USBDevice or the device's own object."""
        found = sorted(self.cluster.objects, key=str)
        if found:
            what, space, name = data.draw(st.sampled_from(found))
            self.cluster.delete(what, name, space)
        self.goes_on(acts, crash)

    @rule(back=MOSTLY, seen=st.booleans(), acts=ACTS, crash=CRASH)
    def pull(self, back: bool, seen: bool, acts: int, crash: bool) -> None:
        """Pulled out, and mostly plugged in again, before the controller has seen it or after."""
        if self.plugged:
            links = [lease.session.link for lease in self.broker._leases.values()]
            self.wait(self.kernel_does(self.kernel.stub.unplug))
            self.cluster.pull(HOME, NAME)
            self.running, self.plugged = None, False
            for link in links:  # the kernel ends a pulled device's connection
                self.wait(self.tell(link))
            self.goes_on(ALL if seen else 0, False)
        if back:
            self.stick = self.kernel.stub.plug(3, serial=b"A1")
            self.cluster.plug(device(HOME, NAME))
            self.plugged = True
        self.goes_on(acts, crash)

    @rule(cut_meanwhile=st.booleans())
    def agent_restarts(self, cut_meanwhile: bool) -> None:
        """Links are the kernel's and go on; what ended while nobody looked is found out."""
        self.wait(self.agent.aclose())
        if cut_meanwhile and self.running is not None:
            self.wait(self.kernel_does(self.kernel.stub.peer_gone))
            self.running = None
        self.begin()
        self.goes_on(0, False)

    @rule(space=st.sampled_from(SPACES), acts=ACTS, crash=CRASH)
    def namespace_again(self, space: str, acts: int, crash: bool) -> None:
        """A namespace goes with its pods, and is made anew under its name."""
        self.cluster.remove_namespace(space)
        self.cluster.add_namespace(space)
        self.goes_on(acts, crash)

    def teardown(self) -> None:
        """All is taken back: nothing is left of any of it."""
        try:
            self.cut(acts=ALL)
            if self.assigned() is not None:
                self.cluster.assign(NAME, "")
            self.cluster.settle()
            for space, name in self.cluster.find(What.CLAIM):
                self.cluster.release(space, name)
                if name == OWN and (What.CLAIM, space, name) in self.cluster.objects:
                    self.cluster.delete(What.CLAIM, name, space)
            self.cluster.settle()
            kinds = {what for what, _, _ in self.cluster.objects}
            assert kinds <= {What.NODE_DEVICE}, self.cluster.objects.keys()
            self.everybody_says_the_same()
            assert driver_of(self.stick) == ("usb" if self.plugged else None)
            if self.plugged:
                self.cluster.pull(HOME, NAME)
            self.cluster.settle()
            self.cluster.wait(GRACE.total_seconds() + 1)
            self.cluster.settle()
            assert not self.cluster.objects
        finally:
            self.wait(self.agent.aclose())
            self.wait(self.stack.aclose())
            self.runner.close()
            for link in self.links:
                link.ours.close()
                link.peer.close()
            shutil.rmtree(self.folder)


Sessions.TestCase.settings = settings(
    max_examples=examples(6), stateful_step_count=12, deadline=None
)
test_any_sequence_of_sessions = Sessions.TestCase
