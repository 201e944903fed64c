# SPDX-License-Identifier: Apache-2.0
"""The plugin as a kubelet meets it: real sockets, real gRPC, both versions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from tests.fakes.kubelet import FakeKubelet
from tests.fakes.kubelet import Refused as NotRegistered
from tests.waiting import until
from usbdra.errors import StateError, Unreachable
from usbdra.plugin.health import DeviceHealth, Health, HealthBoard
from usbdra.plugin.server import PluginServer
from usbdra.plugin.sockets import SocketPaths, remove_stale, socket_paths
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid

from .claims import DRIVER, claim, local_claim, remote_claim
from .world import Agent, World

pytestmark = pytest.mark.usefixtures("grpc_ends")


@pytest.fixture
def short_tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sockets have short paths or none."""
    return tmp_path_factory.mktemp("k")


@asynccontextmanager
async def serving(
    agent: Agent, root: Path, pod: str = "pod-1", board: HealthBoard | None = None
) -> AsyncIterator[PluginServer]:
    paths = paths_of(root, pod)
    server = PluginServer(DRIVER, paths, agent.preparer, board or HealthBoard())
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0.5)


def paths_of(root: Path, pod: str = "pod-1") -> SocketPaths:
    return socket_paths(DRIVER, pod, root / "r", root / "p")


def sockets_in(root: Path) -> list[str]:
    return sorted(p.name for p in root.rglob("*.sock"))


async def test_registration(world: World, short_tmp: Path) -> None:
    registered: list[int] = []
    server = PluginServer(
        DRIVER,
        paths_of(short_tmp),
        world.agent().preparer,
        HealthBoard(),
        lambda: registered.append(1),
    )
    await server.start()
    async with FakeKubelet(short_tmp / "r") as kubelet:
        (info,) = await kubelet.scan()
        assert (info.type, info.name) == ("DRAPlugin", DRIVER)
        assert info.endpoint == str(short_tmp / "p" / DRIVER / "dra-pod-1.sock")
        assert list(info.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
        assert server.registration.registered
        await kubelet.scan()
    assert registered == [1, 1], "a kubelet that starts again is answered again"
    await server.stop(0.1)
    assert sockets_in(short_tmp) == []


@pytest.mark.parametrize("which", ["plugin", "registration"])
async def test_a_wiped_kubelet_directory_is_noticed(
    world: World, short_tmp: Path, which: str
) -> None:
    async with serving(world.agent(), short_tmp) as server:
        assert server.reachable()
        getattr(paths_of(short_tmp), which).unlink()
        assert not server.reachable()


async def test_r41_a_refused_registration_is_waited_out(world: World, short_tmp: Path) -> None:
    async with (
        serving(world.agent(), short_tmp) as server,
        FakeKubelet(short_tmp / "r", services=("v9.DRAPlugin",)) as kubelet,
    ):
        with pytest.raises(NotRegistered):
            await kubelet.scan()
        assert not server.registration.registered
        assert "v9.DRAPlugin" in server.registration.error
        async with FakeKubelet(short_tmp / "r") as newer:
            await newer.scan()
        assert server.registration.registered


@pytest.mark.parametrize("version", ["v1.DRAPlugin", "v1beta1.DRAPlugin"])
async def test_prepare_and_unprepare(world: World, short_tmp: Path, version: str) -> None:
    remote, local = world.add(remote_claim(), local_claim())
    async with (
        serving(world.agent(), short_tmp),
        FakeKubelet(short_tmp / "r", services=(version,)) as kubelet,
    ):
        await kubelet.scan()
        for _ in range(2):
            results = await kubelet.prepare(remote, local)
            assert {uid: r.error for uid, r in results.items()} == {"uid-1": "", "uid-2": ""}
            device, link = results["uid-1"].devices
            assert (list(device.request_names), device.pool_name, device.device_name) == (
                ["usb"],
                "usb-a",
                "stick",
            )
            assert list(device.cdi_device_ids) == [f"{DRIVER}/claim=uid-1-usb-0"]
            assert (list(link.request_names), link.device_name) == (["link"], "vhci-high")
            assert list(link.cdi_device_ids) == []
            if version == "v1.DRAPlugin":
                assert link.share_id == "share-1"
                assert not device.HasField("share_id")
        results = await kubelet.unprepare(remote, local)
        assert {uid: r.error for uid, r in results.items()} == {"uid-1": "", "uid-2": ""}
    assert world.left() == []


async def test_one_bad_claim_never_fails_the_call(world: World, short_tmp: Path) -> None:
    good, bad = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    gone = ClaimRef("lab", "gone", ClaimUid("uid-7"))
    strange = ClaimRef("lab", "strange", ClaimUid("../../etc"))
    world.add({**claim(name="strange", uid="../../etc"), "status": {"allocation": {"devices": 5}}})
    agent = world.agent()
    agent.attacher.failures["second"] = Unreachable("node a does not answer")
    async with serving(agent, short_tmp), FakeKubelet(short_tmp / "r") as kubelet:
        await kubelet.scan()
        results = await kubelet.prepare(good, bad, gone, strange)
        assert results["uid-1"].error == ""
        assert results["uid-3"].error == "Unreachable: node a does not answer"
        assert "claim lab/gone (uid-7) is not in the API any more" in results["uid-7"].error
        assert results["../../etc"].error.startswith("Internal: AttributeError")
        results = await kubelet.unprepare(good, bad, gone, strange)
        assert {r.error for r in results.values()} == {""}
    assert world.left() == []


async def test_r49_a_slow_claim_is_a_result_of_its_own(world: World, short_tmp: Path) -> None:
    slow, quick = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    agent = world.agent(prepare=2.0)
    agent.attacher.gates["stick"] = asyncio.Event()
    async with serving(agent, short_tmp), FakeKubelet(short_tmp / "r") as kubelet:
        await kubelet.scan()
        together = asyncio.create_task(kubelet.prepare(slow, quick))
        alone = await kubelet.prepare(quick)
        assert alone["uid-3"].error == ""
        results = await together
        assert results["uid-3"].error == ""
        assert results["uid-1"].error.startswith("Timeout: claim lab/stick (uid-1) ran out of time")


async def test_a_call_given_up_by_the_kubelet_goes_on(world: World, short_tmp: Path) -> None:
    (ref,) = world.add(remote_claim())
    agent = world.agent()
    gate = agent.attacher.gates["stick"] = asyncio.Event()
    async with serving(agent, short_tmp), FakeKubelet(short_tmp / "r") as kubelet:
        await kubelet.scan()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.prepare(ref, timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        gate.set()
        results = await kubelet.prepare(ref)
        assert results["uid-1"].error == ""
    assert agent.attacher.calls == ["attach stick"]


async def test_stopping_leaves_the_devices_with_their_claims(world: World, short_tmp: Path) -> None:
    done, running = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    agent = world.agent()
    agent.attacher.gates["second"] = asyncio.Event()
    async with FakeKubelet(short_tmp / "r") as kubelet:
        async with serving(agent, short_tmp):
            await kubelet.scan()
            await kubelet.prepare(done)
            call = asyncio.create_task(kubelet.prepare(running))
            await until(lambda: "attach second" in agent.attacher.calls)
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    assert [name for name, _ in world.kernel.ports.values()] == ["stick"]
    await world.agent().recover()
    assert world.specs() == [f"{DRIVER}_claim_uid-1.json"]


async def test_r41_stale_sockets_of_ours_go_and_others_stay(world: World, short_tmp: Path) -> None:
    registry, plugins = short_tmp / "r", short_tmp / "p"
    for name in (f"{DRIVER}-pod-0-reg.sock", "other.example-pod-0-reg.sock"):
        stale(registry / name)
    stale(plugins / DRIVER / "dra-pod-0.sock")
    stale(plugins / DRIVER / "dra-pod-1.sock")
    (registry / f"{DRIVER}-note-reg.sock").write_text("not a socket")
    async with serving(world.agent(), short_tmp), FakeKubelet(registry) as kubelet:
        assert sockets_in(short_tmp) == [
            "dra-pod-1.sock",
            "other.example-pod-0-reg.sock",
            f"{DRIVER}-note-reg.sock",
            f"{DRIVER}-pod-1-reg.sock",
        ]
        await asyncio.sleep(0.02)  # the kubelet comes when it comes
        await kubelet.register(registry / f"{DRIVER}-pod-1-reg.sock")


def stale(path: Path) -> None:
    """A socket file whose listener was killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


async def test_r42_two_agents_at_once(world: World, short_tmp: Path) -> None:
    first, second = world.add(remote_claim(), remote_claim("second", "uid-3", "second"))
    old, new = world.agent(), world.agent()
    async with FakeKubelet(short_tmp / "r") as kubelet, serving(new, short_tmp, "pod-2"):
        async with serving(old, short_tmp, "pod-1"):
            await kubelet.scan()
            assert len(kubelet.plugins) == 2
            assert remove_stale(DRIVER, paths_of(short_tmp, "pod-3")) == []
            await asyncio.gather(kubelet.prepare(first), kubelet.prepare(second))
        # the old one is gone; its sockets with it, the newer one's are not
        assert sockets_in(short_tmp) == ["dra-pod-2.sock", f"{DRIVER}-pod-2-reg.sock"]
        results = await kubelet.unprepare(first, second)
        assert {r.error for r in results.values()} == {""}
    assert world.left() == []


@pytest.mark.parametrize("directory", ["r", "p"])
async def test_socket_that_cannot_be_made(world: World, short_tmp: Path, directory: str) -> None:
    (short_tmp / directory).write_text("a file where the directory should be")
    server = PluginServer(DRIVER, paths_of(short_tmp), world.agent().preparer, HealthBoard())
    with pytest.raises(StateError, match=r"cannot listen on .*sock: .*(Not a directory|exists)"):
        await server.start()
    assert sockets_in(short_tmp) == []


async def test_a_path_that_is_taken(world: World, short_tmp: Path) -> None:
    paths = paths_of(short_tmp)
    paths.registration.mkdir(parents=True)
    server = PluginServer(DRIVER, paths, world.agent().preparer, HealthBoard())
    with pytest.raises(StateError, match="cannot listen on"):
        await server.start()
    assert not paths.plugin.exists()


@pytest.mark.parametrize("version", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_health_stream(world: World, short_tmp: Path, version: str) -> None:
    board = HealthBoard()
    board.set(DeviceHealth("usb-a", "stick", Health.HEALTHY))
    async with (
        serving(world.agent(), short_tmp, board=board),
        FakeKubelet(short_tmp / "r", health=(version,)) as kubelet,
    ):
        await kubelet.scan()
        async with aclosing(kubelet.watch_health()) as answers:  # type: ignore[type-var]
            (device,) = (await anext(answers)).devices
            assert (device.device.pool_name, device.device.device_name) == ("usb-a", "stick")
            assert device.health == 1
            assert device.health_check_timeout_seconds == 120
            assert device.last_updated_time > 1_700_000_000
            board.set(DeviceHealth("usb-a", "stick", Health.UNHEALTHY, "LinkLost: node a is gone"))
            (device,) = (await anext(answers)).devices
            assert (device.health, device.message) == (2, "LinkLost: node a is gone")
            board.remove("usb-a", "stick")
            assert list((await anext(answers)).devices) == []


async def test_health_stream_ends_when_the_server_stops(world: World, short_tmp: Path) -> None:
    board = HealthBoard()
    async with FakeKubelet(short_tmp / "r") as kubelet:
        async with serving(world.agent(), short_tmp, board=board):
            await kubelet.scan()
            answers = kubelet.watch_health()
            await anext(answers)
        assert [answer async for answer in answers] == []
