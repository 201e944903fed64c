# SPDX-License-Identifier: Apache-2.0
"""The agent: builds the parts, wires them, starts and stops them in order.

Owns composition and nothing else. Order of start: look at the node, finish what an earlier agent
left half done, serve the kubelet, publish, export. Running links are the kernel's and are not
touched by a start or a stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import SystemRandom

from usbdra.agent import fault, telling
from usbdra.agent.addresses import NodeAddresses
from usbdra.agent.assignments import Assignments
from usbdra.agent.certificate import NodeCertificate
from usbdra.agent.devices import NodeDevices
from usbdra.agent.export import Export
from usbdra.agent.facts import Parts
from usbdra.agent.holds import Holds
from usbdra.agent.hostmodules import HostModules
from usbdra.agent.linkreports import LinkReports
from usbdra.agent.metering import Metering
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.agent.options import AgentOptions
from usbdra.agent.outside import OutsideHosts
from usbdra.agent.peers import ClaimGuard, Dialler, LiveClaims
from usbdra.agent.plugs import Plugs
from usbdra.agent.podplugs import ClaimContainers
from usbdra.agent.ports import PortCount
from usbdra.agent.probes import Probes, socket_path
from usbdra.agent.refusals import RefusalEvents
from usbdra.agent.removed import RemovedNodes
from usbdra.agent.reporter import KubeReporter
from usbdra.agent.resets import Resets
from usbdra.agent.resetting import DeviceReset
from usbdra.agent.supervisor import Cause, Supervisor
from usbdra.agent.views import PublishedDevices
from usbdra.containers.live import LiveContainers
from usbdra.discovery import hostuse, tree
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.live import LiveInventory
from usbdra.discovery.uevent import NetlinkSource, UeventHub
from usbdra.dumping import StateDump
from usbdra.errors import KernelUnsupported
from usbdra.exporter.bind import Binder
from usbdra.exporter.fence import no_fence
from usbdra.exporter.local import LocalBroker
from usbdra.importer.attach import Attacher
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.pki import sets
from usbdra.plugin.files import ClaimFiles
from usbdra.plugin.health import HealthBoard
from usbdra.plugin.locks import NodeLock
from usbdra.plugin.prepare import Preparer
from usbdra.plugin.records import Records
from usbdra.plugin.server import PluginServer
from usbdra.plugin.sockets import new_instance, socket_paths
from usbdra.slices.build import Layout, SliceOptions, Visibility, build
from usbdra.slices.publish import Owner, SlicePublisher
from usbdra.state.claims import ClaimRecord, ClaimRef, ClaimSchema
from usbdra.state.exports import Session
from usbdra.state.store import RecordStore
from usbdra.stopping import until_told
from usbdra.tracing.spans import OFF, Tracer
from usbdra.transport import measure
from usbdra.transport.tls import LateIdentity, TlsFiles
from usbdra.transport.watch import LinkWatch, NetlinkEnds
from usbdra.types import ClaimUid, DeviceName, NodeName, Port
from usbdra.vhci.driver import VhciDriver

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FALLBACK_FIELDS = frozenset({"allowMultipleAllocations", "capacity.requestPolicy"})
"""Without these fields a hub cannot be counted by the scheduler: one device per port then."""


async def run(options: AgentOptions, tracer: Tracer = OFF) -> None:
    """Be the node's agent until SIGTERM or SIGINT."""
    dump = StateDump()
    await until_told(_serve(options, dump, tracer), "agent", dump)


async def _serve(options: AgentOptions, dump: StateDump, tracer: Tracer) -> None:
    async with AsyncExitStack() as stack:
        probes = Probes(socket_path(options.run_dir, options.pod_uid))
        await probes.start()
        stack.push_async_callback(probes.stop)
        metering = Metering(options)
        api = await KubeClient.connect(options.kubeconfig, on_answer=metering.answered)
        stack.push_async_callback(api.aclose)
        hub = UeventHub(NetlinkSource())
        hub.start()
        stack.callback(hub.close)
        agent = Agent(options, api, hub, probes, metering, tracer)
        telling.follow(dump, agent.parts())
        await agent.run()


class Agent:
    """The parts of one node, wired."""

    def __init__(
        self,
        options: AgentOptions,
        api: KubeClient,
        hub: UeventHub,
        probes: Probes,
        metering: Metering,
        tracer: Tracer = OFF,
    ) -> None:
        self._options = options
        self._metering = metering
        self._publisher: SlicePublisher | None = None
        self._api = api
        self._probes = probes
        self._live = LiveInventory(
            Inventory(options.root, node=options.node, policy=options.policy), hub, poke=tree.poke
        )
        self._hub = hub
        self._modules = HostModules(options.root, self._live.inventory, self._live.changed)
        self._vhci = VhciDriver(
            options.root, node=options.node, lock_file=options.run_dir / "vhci.lock"
        )
        binder = Binder(
            options.root,
            events=hub,
            in_use=partial(hostuse.holder_of, options.root),
            journal=options.run_dir / "exports",
        )
        self._holds = Holds(
            self._live.inventory, self._claim_records, self._outlived, self._live.changed
        )
        self._removed = RemovedNodes(api, self._end_sessions_of, self._holds)
        self._broker = LocalBroker(
            binder,
            lambda: self._live.snapshot,
            authorise=self._authorise,
            outlived=self._outlived,
            held_here=self._held_here,
            ports=self._removed,
        )
        self._objects = NodeObjects(api, Contract(options.group), options.node)
        self._assignments = Assignments.of_node(options, self._objects)
        allowed = self._assignments.require if self._assignments is not None else no_fence
        outside = OutsideHosts(api, options, self._pki) if options.outside_hosts else None
        identity = LateIdentity(lambda: TlsFiles.in_directory(self._pki()))
        dialler = Dialler(api, identity, options.port, options.encryption, outside)
        store = RecordStore(options.state_dir / "claims", ClaimSchema())
        self._records = Records(store, self._claims_changed)
        self._port_count = PortCount(
            self._vhci.table, self._records, options.max_ports, options.node
        )
        self._devices = NodeDevices(
            peers=dialler,
            before_attach=self._port_count.check,
            attacher=Attacher(self._vhci, hub, root=options.root),
            vhci=self._vhci,
            events=hub,
            snapshot=lambda: self._live.snapshot,
            leases=self._broker,
            allowed=allowed,
            root=options.root,
            before_release=self._unplug,
            on_attached=metering.attached,
        )
        containers = LiveContainers.of_host(options.host_proc, options.claims_dir)
        self._plugs = Plugs.of_node(
            api, options, self._records.get, self._devices.intact, containers
        )
        plugged = self._plugs.plugged if self._plugs is not None else None
        self._certificate = NodeCertificate.of_node(options, api)
        nodes = NodeAddresses(api, self._removed.seen)
        self._guard = ClaimGuard(
            api,
            options.driver,
            options.node,
            self._devices.holder,
            allowed,
            nodes.require_same,
        )
        self._reporter = KubeReporter(api, options.driver, options.node)
        self._refusals = RefusalEvents(api, options.node, self._reporter.event)
        self._export = Export(
            options,
            self._broker,
            pki=self._pki,
            identity=identity,
            addresses=nodes,
            on_refused=self._refusals,
            count=metering.decided,
            tracer=tracer,
        )
        board = HealthBoard()
        self._link_reports = LinkReports(
            self._reporter,
            api,
            options.driver,
            self._claim_records,
            partial(measure.links_to, options.port),
            seconds=options.link_report_seconds,
        )
        self._resets = self._make_resets() if options.resets else None
        self._preparer = Preparer(
            driver=options.driver,
            node=options.node,
            boot_id=BOOT_ID.read_text().strip(),
            records=self._records,
            claims=LiveClaims(api),
            view=PublishedDevices(api, options.driver, options.node, lambda: self._live.snapshot),
            attacher=self._devices,
            files=ClaimFiles(options.driver, options.cdi_dir, options.claims_dir),
            reporter=self._link_reports,
            node_lock=NodeLock(options.run_dir / "agent.lock", self._records.load),
            board=board,
            on_step=fault.hook(options.fault_file),
            on_done=metering.done,
            containers=ClaimContainers.of_node(containers, plugged),
            tracer=tracer,
        )
        self._supervisor = Supervisor(
            self._preparer.losses,
            self._preparer.restore,
            hub,
            answers=lambda ref: dialler.answers_for(self._records.get(ref.uid)),
            random=SystemRandom().random,
            on_lost=metering.lost,
            on_tried=metering.tried,
        )
        self._links = LinkWatch(lambda: NetlinkEnds(options.port))
        self._links.listen(self._supervisor.link_ended)
        self._links.listen(self._broker.link_ended)
        self._plugin = PluginServer(
            options.driver,
            socket_paths(
                options.driver,
                new_instance(options.pod_uid),
                options.kubelet_dir / "plugins_registry",
                options.kubelet_dir / "plugins",
            ),
            self._preparer,
            board,
            on_registered=lambda: probes.set("startup"),
        )
        probes.live_while(self._plugin.reachable)

    async def run(self) -> None:
        """Start all parts and keep them until cancelled, then stop them in reverse."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            self._modules.look()
            self._live.inventory.resync()
            group.create_task(self._modules.run(self._hub))
            group.create_task(self._live.run())
            group.create_task(self._reporter.run())
            if self._certificate is not None:
                group.create_task(self._certificate.run())
            stack.push_async_callback(self._preparer.aclose)
            if self._plugs is not None:
                await self._plugs.load()
            lost = await self._recover()
            stack.push_async_callback(self._removed.aclose)
            await self._broker.start()
            stack.push_async_callback(self._broker.stop)
            await self._plugin.start()
            stack.push_async_callback(self._plugin.stop)
            group.create_task(self._refusals.run())
            ready = self._certificate.ready if self._certificate is not None else None
            group.create_task(self._export.run(ready))
            group.create_task(self._metering.serve(self._api, self.parts()))
            group.create_task(self._publish())
            group.create_task(self._supervisor.run())
            group.create_task(self._holds.run())
            group.create_task(self._links.run())
            group.create_task(self._follow_devices())
            if self._plugs is not None:
                group.create_task(self._plugs.run())
            if self._options.link_report_seconds:
                group.create_task(self._link_reports.run())
            if self._resets is not None:
                group.create_task(self._resets.run())
            if self._resets is not None or self._assignments is not None:
                group.create_task(self._objects.run())
            for ref in lost:
                self._supervisor.restore(ref, Cause.START)
            devices = len(self._live.snapshot.offers)
            log.info("agent started", extra={"node": self._options.node, "devices": devices})
            await asyncio.Event().wait()

    def parts(self) -> Parts:
        """What metrics and dumps are read from."""
        return Parts(
            ready=lambda: self._probes.states["ready"],
            snapshot=lambda: self._live.snapshot,
            ports=self._port_count,
            records=self._claim_records,
            restoring=lambda: self._supervisor.restoring,
            holders=self._broker.holders,
            queued=lambda: self._reporter.waiting,
            links=partial(measure.links_to, self._options.port),
            slices=lambda: self._publisher.stats if self._publisher else None,
            pki=self._pki,
        )

    def _make_resets(self) -> Resets:
        """What resets devices on request, each by the facts of this very moment."""
        act = DeviceReset(
            self._options.root,
            lambda: self._live.snapshot,
            over_network=self._broker.holder,
            here=self._devices.holder,
            host_use=partial(hostuse.holder_of, self._options.root),
        )
        return Resets.of_node(self._api, self._objects, self._options, act)

    async def _publish(self) -> None:
        """Slices follow the snapshot and the ports; the Node is their owner."""
        owner = await Owner.of_node(self._api, self._options.node, self._options.driver)
        publisher = self._publisher = SlicePublisher(self._api, owner, self._slices)
        async with asyncio.TaskGroup() as group:
            if self._assignments is not None:
                self._assignments.on_change = publisher.wake
                await self._assignments.first_answer()
            group.create_task(publisher.run())
            group.create_task(self._ready(publisher))
            async for _ in self._live.watch():
                publisher.wake()

    async def _ready(self, publisher: SlicePublisher) -> None:
        await publisher.published()
        self._probes.set("ready")

    def _slices(self, dropped: frozenset[str]) -> Sequence[dict[str, object]]:
        """What to publish now, given the fields that this API server does not keep."""
        offers = self._live.snapshot.offers
        options = SliceOptions(
            node=self._options.node,
            group=self._options.group,
            visibility=Visibility(self._options.visibility),
            layout=Layout.PORTS if dropped & FALLBACK_FIELDS else Layout.HUB,
            taints=self._assignments.taints(o.name for o in offers) if self._assignments else {},
        )
        return build(offers, self._port_count.published(), options)

    async def _recover(self) -> Sequence[ClaimRef]:
        """Finish what an earlier agent left; the claims that are to be restored."""
        found = await self._preparer.recover(self._ports)
        return [one.ref for lost in found if (one := self._records.get(lost.uid)) is not None]

    async def _follow_devices(self) -> None:
        async for change in self._live.watch():
            telling.tell(change)
            self._supervisor.devices_changed()
            self._holds.devices_changed()

    def _ports(self) -> Sequence[Port]:
        try:
            return self._vhci.table().ports
        except KernelUnsupported as error:
            log.warning("devices of other nodes cannot be used here: %s", error)
            return ()

    async def _authorise(self, *request: object) -> None:
        await self._guard.authorise(*request)  # type: ignore[arg-type]

    async def _outlived(self, name: DeviceName, session: Session) -> bool:
        return await self._guard.outlived(name, session)

    def _claims_changed(self) -> None:
        self._holds.apply()
        if self._plugs is not None:
            self._plugs.claims_changed()

    async def _unplug(self, claim: ClaimUid) -> None:
        if self._plugs is not None:
            await self._plugs.release(claim)

    def _claim_records(self) -> Iterable[ClaimRecord]:
        return self._records.all().values()

    async def _end_sessions_of(self, node: NodeName) -> None:
        await self._broker.end_sessions_of(node)

    def _held_here(self, name: DeviceName) -> ClaimRef | None:
        return self._devices.holder(name)

    def _pki(self) -> Path:
        """The directory of the node's certificate."""
        return self._options.pki_dir / (sets.CURRENT if self._certificate is not None else "")
