# SPDX-License-Identifier: Apache-2.0
"""A host outside the cluster from its request to a device in a node's hands, on a real API server.

Controller and agents have their own accounts with the chart's rights and policies; the host is the
product's listener in front of the product's broker, on the fake kernel.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, Manifest, installed
from tests.api.conftest import MakeNode
from tests.api.devices import PublishingNode, condition, exists, has, until
from tests.api.test_controller_devices import CONTRACT, NUSB, pod, reserved
from tests.api.test_kubectl_rights import DONE, NOT_FOUND, NOT_YET, as_account
from tests.cluster.alone import Alone
from tests.cluster.api import ClusterApi
from tests.contract.exporting import driver_of
from tests.fakes.broker import STICK as REMOTE
from tests.fakes.kernel import FakeKernel
from tests.fakes.sysfs import FakeDevice
from tests.unit.slices.samples import offer
from usbdra.agent.certificate import CertificateOptions, NodeCertificate
from usbdra.agent.options import AgentOptions
from usbdra.agent.outside import OutsideHosts
from usbdra.agent.peers import Dialler
from usbdra.agent.resetting import DeviceReset
from usbdra.agent.views import PublishedDevices
from usbdra.cli.kubectl import hosts
from usbdra.cli.kubectl.program import program
from usbdra.cli.main import run
from usbdra.controller import outsidelink
from usbdra.controller.issuing import CertificateSettings
from usbdra.controller.options import ControllerOptions
from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.controller.parts import Office, factories, run_parts
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.live import LiveInventory
from usbdra.discovery.snapshot import Snapshot
from usbdra.errors import PeerRefused, Refused
from usbdra.exporter.bind import Binder
from usbdra.exporter.editions import Editions
from usbdra.exporter.hostresets import HostResets
from usbdra.exporter.local import LocalBroker
from usbdra.exporter.outside import GrantGuard
from usbdra.exporter.policy import AccessPolicy
from usbdra.exporter.renewal import HostRenewal
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.exporter.stubhost import BindLimits, StubHost
from usbdra.exporter.visits import Visits
from usbdra.importer.dial import dial
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.reading import read
from usbdra.kube.types import POD, RESOURCE_CLAIM, RESOURCE_SLICE
from usbdra.pki import hostfiles, sets
from usbdra.plugin.contracts import Order
from usbdra.plugin.plan import plan
from usbdra.plugin.plan import read_claim as read_allocation
from usbdra.slices.build import SliceOptions, Visibility, build, slice_name
from usbdra.slices.outside import build_outside
from usbdra.state.claims import ClaimRef, Route
from usbdra.state.resets import ResetSchema
from usbdra.state.store import RecordStore
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import Identity, TlsFiles
from usbdra.types import CONTROLLER, ClaimUid, Hub, NodeName
from usbdra.usbip.extension import ClaimRef as WireClaim

__all__ = ["as_account"]  # fixtures

VALUES = {"outsideHosts.enabled": "true", "policies.enabled": "true"}
HOSTS = CONTRACT.host
STICK = "usb-0781-5581-a1"
POOL = "usb-outside/pi"
WAIT = 60


def ours(item: Manifest) -> bool:
    return bool(item["kind"] not in ("Service", "ConfigMap", "PriorityClass"))


@pytest.fixture(scope="module", autouse=True)
def chart(api: ClusterApi) -> Iterator[None]:
    with installed(api, VALUES, ours):
        yield


@dataclass
class Host:
    """A machine outside the cluster with one stick; `directory` has its key and certificate."""

    directory: Path
    port: int
    kernel: FakeKernel
    stick: FakeDevice
    reset: list[Path] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """`usbdra serve`, as far as the network sees it."""
        kernel, editions = self.kernel, Editions()
        live = LiveInventory(Inventory(kernel.root, node="x"), kernel.events)
        limits = BindLimits(status=0.2, driver=0.1)
        stub = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub, limits=limits)
        binder = Binder(kernel.root, events=kernel.events, in_use=lambda busid: None, host=stub)
        broker = LocalBroker(
            binder,
            lambda: live.snapshot,
            authorise=GrantGuard("pi").authorise,
            on_session=editions.changed,
        )
        act = DeviceReset(
            kernel.root,
            lambda: live.snapshot,
            over_network=broker.holder,
            here=lambda name: None,
            host_use=lambda busid: None,
            reset=self.reset.append,
        )
        records = RecordStore(self.directory.parent / "resets", ResetSchema())
        resets = HostResets(broker, records, act)
        following = [
            asyncio.create_task(one) for one in (live.run(), editions.follow(live.watch()))
        ]
        await broker.start()
        server = ExporterServer(
            broker,
            Listen(("127.0.0.1",), self.port),
            identity=Identity(TlsFiles.in_directory(self.directory)),
            encryption=Encryption.ALLOWED,
            policy=AccessPolicy(others=frozenset({CONTROLLER})),
            visited=Visits(HostRenewal(self.directory, "pi"), broker, editions, resets),
        )
        async with server:
            yield
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await broker.stop()


@pytest_asyncio.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with FakeKernel(tmp_path / "host") as kernel:
        yield Host(tmp_path / "pki", port, kernel, kernel.stub.plug(3, serial=b"A1"))


@pytest_asyncio.fixture
async def admin(accounts: Accounts, api: ClusterApi) -> AsyncIterator[KubeClient]:
    yield await accounts.admin()
    api.kubectl("delete", "pods", "--all", "--all-namespaces", "--grace-period=0", "--force")
    api.kubectl("delete", "usbexporterhosts,nusb,resourceslices", "--all")
    for kind in ("secret/usbdra-ca", "configmap/usbdra-trust"):
        api.kubectl("-n", NAMESPACE, "delete", kind, "--ignore-not-found")


@asynccontextmanager
async def controller(
    accounts: Accounts, port: int, look_seconds: float = 0.5
) -> AsyncIterator[None]:
    """A whole controller with its own account. look_seconds: between looks at a host that tells
    nothing."""
    client = await accounts.client(NAMESPACE, "usbdra-controller")
    options = ControllerOptions(
        identity="one",
        namespace=NAMESPACE,
        group=GROUP,
        absent_grace=2.0,
        certificates=CertificateSettings(signer=f"{GROUP}/usbdra-node"),
        outside=OutsideSettings(
            port=port,
            encryption=Encryption.ALLOWED,
            assignment="Required",
            look_seconds=look_seconds,
            silent_seconds=0.5,
        ),
    )
    task = asyncio.create_task(run_parts(Office(client, options), factories(options)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def kubectl_usb(*words: str) -> int:
    """In a thread: it has a loop of its own."""
    return await asyncio.to_thread(run, list(words), program, "kubectl usb")


async def added(host: Host, plane: Alone, capsys: pytest.CaptureFixture[str]) -> None:
    """The documented steps: request there, sign here, accept there."""
    request = host.directory.parent / "pi.csr"
    request.write_bytes(hostfiles.request(host.directory, "pi"))
    capsys.readouterr()
    config = str(plane.plane.admin_kubeconfig)
    code = await kubectl_usb(
        "exporter", "add", "pi", "--address", "127.0.0.1", "--csr", str(request),
        "--driver-namespace", NAMESPACE, "--kubeconfig", config,
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    hostfiles.accept(host.directory, out.encode(), datetime.now(UTC), "pi.pem")


async def trusted(stack: AsyncExitStack, client: KubeClient, node: str, path: Path) -> Path:
    """The directory of the certificate that the node's agent keeps."""
    options = CertificateOptions(NodeName(node), path, f"{GROUP}/usbdra-node", NAMESPACE)
    part = NodeCertificate(client, options, backoff=(0.2, 1.0))
    task = asyncio.create_task(part.run())
    stack.callback(task.cancel)
    async with asyncio.timeout(WAIT):
        await part.ready.wait()
    return path / sets.CURRENT


async def given_back(host: Host) -> None:
    async with asyncio.timeout(WAIT):
        while driver_of(host.stick) != "usb":
            await asyncio.sleep(0.02)


async def test_a_device_outside_is_used_like_one_of_a_node(
    api: ClusterApi, plane: Alone, accounts: Accounts, admin: KubeClient, make_node: MakeNode,
    namespace: str, host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    label = {f"{GROUP}/usbip": "true"}
    nodes = [make_node(name, label) for name in ("node-b", "node-c")]
    for name in nodes:
        address = {"type": "InternalIP", "address": "127.0.0.1"}
        api.core.patch_node_status(name, {"status": {"addresses": [address]}})
        publisher = await accounts.client(NAMESPACE, "usbdra-agent", name)
        await PublishingNode(publisher, name, Visibility.CLUSTER).publish()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(controller(accounts, host.port))
        await until(admin, NUSB, STICK, lambda item: item is None)
        await added(host, plane, capsys)
        serving = await stack.enter_async_context(AsyncExitStack())
        await serving.enter_async_context(host.serving())
        await until(admin, HOSTS, "pi", has("Ready", "Ready"))
        shown = await until(admin, NUSB, STICK, has("Ready", "Ready"))
        assert shown["status"]["host"] == "pi"
        assert "nodeName" not in shown["status"]

        # Assigned, claimed, placed: by the real scheduler, on a port of a node.
        await admin.merge(NUSB, STICK, {"spec": {"assignedNamespace": namespace}})
        await until(admin, NUSB, STICK, has("Assigned", "Assigned"))
        user = pod("p", "node-b")
        user["spec"]["resourceClaims"][0]["resourceClaimName"] = STICK
        await admin.create(POD, user, namespace)
        claim = await until(admin, RESOURCE_CLAIM, STICK, reserved, namespace)
        pools = {r["pool"] for r in claim["status"]["allocation"]["devices"]["results"]}
        assert pools == {POOL, "usblink-node-b"}

        # The node's agent plans it on a port, is granted it, and gets it.
        agent = await accounts.client(NAMESPACE, "usbdra-agent", "node-b")
        view = PublishedDevices(agent, CONTRACT.driver, NodeName("node-b"), Snapshot)
        allocation = read_allocation(
            await read(agent, RESOURCE_CLAIM, STICK, namespace) or {}, CONTRACT.driver
        )
        facts = {
            (r.pool, r.device): fact
            for r in allocation.results
            if (fact := await view.lookup(r.pool, r.device)) is not None
        }
        (device,) = plan(allocation, facts, {}, NodeName("node-b"), "boot").devices
        assert (device.node, device.route, device.hub) == ("outside/pi", Route.VHCI, Hub.HIGH)
        pki = await trusted(stack, agent, "node-b", tmp_path / "b")
        ref = ClaimRef(namespace, STICK, ClaimUid(claim["metadata"]["uid"]))
        order = Order(ref, device.name, device.node, device.hub, None, True)

        def dialler(client: KubeClient, node: str, certificate: Path) -> Dialler:
            options = AgentOptions(
                node=NodeName(node), pod_uid="x", group=GROUP, port=host.port,
                encryption=Encryption.ALLOWED,
            )  # fmt: skip
            outside = OutsideHosts(client, options, lambda: certificate)
            own = lambda: Identity(TlsFiles.in_directory(certificate))  # noqa: E731
            return Dialler(client, own, host.port, Encryption.ALLOWED, outside)

        # Another node is granted nothing, and the host gives nothing to a node without a grant.
        other = await accounts.client(NAMESPACE, "usbdra-agent", "node-c")
        foreign = await trusted(stack, other, "node-c", tmp_path / "c")
        with pytest.raises(Refused, match="was given to node node-b, not to node-c"):
            await dialler(other, "node-c", foreign).connect(order)
        async with await dial(
            "127.0.0.1", host.port, identity=Identity(TlsFiles.in_directory(pki)),
            expect="outside/pi", encryption=Encryption.ALLOWED,
        ) as link:  # fmt: skip
            with pytest.raises(PeerRefused, match="node node-b shows no grant of the cluster"):
                await link.grant(STICK, claim=WireClaim(ref.namespace, ref.name, ref.uid))
        assert driver_of(host.stick) == "usb"

        connection = await dialler(agent, "node-b", pki).connect(order)
        assert connection.device.name == STICK
        assert driver_of(host.stick) == "usbip-host"
        connection.sock.close()
        await given_back(host)

        # A session whose claim is gone is ended by the controller's word: the pod goes, and with
        # it the allocation, while the node holds on to its end.
        connection = await dialler(agent, "node-b", pki).connect(order)
        assert driver_of(host.stick) == "usbip-host"
        api.kubectl("-n", namespace, "delete", "pod", "p", "--grace-period=0", "--force")
        await given_back(host)
        connection.sock.close()

        # The host goes away, and is back.
        await serving.aclose()
        await until(admin, HOSTS, "pi", lambda item: condition(item, "Ready")[0] == "False")
        away = await until(admin, NUSB, STICK, has("Ready", "NotReady"))
        texts = {c["type"]: c["message"] for c in away["status"]["conditions"]}
        assert texts["Ready"] == "host pi does not answer"
        await serving.enter_async_context(host.serving())
        await until(admin, NUSB, STICK, has("Ready", "Ready"))

        # Removed: its slices go with its object, and nobody is granted its device.
        await kubectl_usb(
            "exporter", "remove", "pi", "--force", "--kubeconfig",
            str(plane.plane.admin_kubeconfig),
        )  # fmt: skip
        await until(admin, NUSB, STICK, has("Ready", "NotFound"))
        # The garbage collector's work, after the object is gone.
        name = slice_name(POOL, 0, CONTRACT.driver)
        await until(admin, RESOURCE_SLICE, name, lambda item: item is None)
        assert not await exists(admin, HOSTS, "pi")


async def test_host_and_controller_tell_each_other_at_once(
    plane: Alone, accounts: Accounts, admin: KubeClient, host: Host,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async with controller(accounts, host.port):
        await until(admin, NUSB, STICK, lambda item: item is None)
        await added(host, plane, capsys)
    # From here on the clock looks in an hour: what is shown before was told.
    monkeypatch.setattr(outsidelink, "WAIT_SECONDS", 300)
    async with host.serving(), controller(accounts, host.port, look_seconds=3600):
        await until(admin, NUSB, STICK, has("Ready", "Ready"))
        second = host.kernel.stub.plug(4, serial=b"B2")
        await until(admin, NUSB, "usb-0781-5581-b2", has("Ready", "Ready"))
        await until(admin, HOSTS, "pi", lambda item: (item or {})["status"]["devices"] == 2)
        host.kernel.stub.unplug(second)
        await until(admin, NUSB, "usb-0781-5581-b2", has("Ready", "NotFound"))
        await until(admin, HOSTS, "pi", lambda item: (item or {})["status"]["devices"] == 1)

        # The other way: a reset does not wait for the host's next news either.
        config = str(plane.plane.admin_kubeconfig)
        capsys.readouterr()
        code = await kubectl_usb("reset", STICK, "--kubeconfig", config)
        out, err = capsys.readouterr()
        assert (code, out) == (0, f"{STICK}: reset by its host\n"), err
        assert len(host.reset) == 1


async def test_nobody_publishes_in_anothers_place(
    accounts: Accounts, admin: KubeClient, make_node: MakeNode
) -> None:
    node = make_node()
    agent = await accounts.client(NAMESPACE, "usbdra-agent", node)
    lead = await accounts.client(NAMESPACE, "usbdra-controller")

    (outside,) = build_outside("pi", GROUP, [REMOTE], {})
    with pytest.raises(errors.ApiForbidden, match="not pool usb-outside/pi"):
        await agent.create(RESOURCE_SLICE, outside)
    own = SliceOptions(node=node, group=GROUP)
    for item in build([offer("stick")], {Hub.HIGH: 1}, own):
        with pytest.raises(errors.ApiForbidden, match="slices of hosts outside the cluster alone"):
            await lead.create(RESOURCE_SLICE, item)
    (lying,) = build_outside("pi", GROUP, [REMOTE], {})
    lying["spec"]["devices"][0]["attributes"]["node"] = {"string": node}
    with pytest.raises(errors.ApiForbidden, match="slices of hosts outside the cluster alone"):
        await lead.create(RESOURCE_SLICE, lying)
    made = await lead.create(RESOURCE_SLICE, outside)
    with pytest.raises(errors.ApiForbidden, match="not pool usb-outside/pi"):
        await agent.delete(RESOURCE_SLICE, made["metadata"]["name"])
    await lead.delete(RESOURCE_SLICE, made["metadata"]["name"])


def test_the_documented_rights_are_enough_for_who_adds_hosts(
    as_account: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "ANSWER_SECONDS", 2.0)
    made = ("add", "lab-pc", "--address", "192.0.2.9", "--with-key", str(tmp_path / "lab-pc"))
    for words, code, said in (
        (made, NOT_YET, "is usbdra controller running"),
        (("list",), DONE, "lab-pc   192.0.2.9"),
        (("remove", "lab-pc"), DONE, "host lab-pc: removed"),
        (("remove", "lab-pc", "--force"), NOT_FOUND, "there is no host lab-pc"),
    ):
        found = as_account("exporter", *words)
        assert (found[0], said in found[1]) == (code, True), (words, found)
