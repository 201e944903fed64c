# SPDX-License-Identifier: Apache-2.0
"""All parts of an agent wired together, on a made-up node and an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.exporter import free_port
from tests.fakes.kernel import FakeKernel
from tests.fakes.kube import FakeKube
from tests.unit.plugin.conftest import grpc_ends, grpc_poller
from tests.waiting import until
from usbdra.agent import telling
from usbdra.agent.daemon import Agent
from usbdra.agent.metering import Metering
from usbdra.agent.options import AgentOptions
from usbdra.agent.probes import Probes, ask, socket_path
from usbdra.dumping import StateDump
from usbdra.kube.types import NODE, RESOURCE_SLICE
from usbdra.types import NodeName

__all__ = ["grpc_ends", "grpc_poller"]


@asynccontextmanager
async def running(
    root: Path, kubelet: Path, kernel: FakeKernel, api: FakeKube
) -> AsyncIterator[tuple[AgentOptions, Any]]:
    options = AgentOptions(
        node=NodeName("a"),
        pod_uid="pod-1",
        port=0,
        root=root,
        pki_dir=root / "pki",
        run_dir=root / "run",
        state_dir=root / "state",
        kubelet_dir=kubelet,
        cdi_dir=root / "cdi",
        claims_dir=root / "claims",
        metrics=("127.0.0.1", free_port()),
    )
    probes = Probes(socket_path(options.run_dir, options.pod_uid))
    await probes.start()
    metering = Metering(options)
    agent: Any = Agent(options, api, kernel.events, probes, metering)  # type: ignore[arg-type]
    task = asyncio.create_task(agent.run())
    try:
        yield options, agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await probes.stop()
    assert task.cancelled(), task


async def scraped(options: AgentOptions) -> str:
    """What Prometheus would get."""
    assert options.metrics is not None
    reader, writer = await asyncio.open_connection(*options.metrics)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


def offered(api: FakeKube) -> list[str]:
    """Names of the devices in the pool that crosses nodes."""
    pools = (s["spec"] for s in api.all(RESOURCE_SLICE) if s["spec"]["pool"]["name"] == "usb-a")
    return [device["name"] for spec in pools for device in spec["devices"]]


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[FakeKernel]:
    async with FakeKernel(tmp_path) as made:
        yield made


@pytest.mark.usefixtures("grpc_ends")
async def test_an_agent_starts_follows_its_node_and_stops(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kernel: FakeKernel
) -> None:
    kubelet = tmp_path_factory.mktemp("k")  # a socket's path is short
    api = FakeKube()
    api.put(NODE, {"metadata": {"name": "a"}})
    kernel.stub.plug(3, serial=b"A1")
    async with running(tmp_path, kubelet, kernel, api) as (options, agent):
        await until(lambda: offered(api) == ["usb-0781-5581-a1"])
        stick = kernel.stub.plug(4, serial=b"B2")
        await until(lambda: offered(api) == ["usb-0781-5581-a1", "usb-0781-5581-b2"])
        kernel.stub.unplug(stick)
        await until(lambda: offered(api) == ["usb-0781-5581-a1"])
        probe = socket_path(options.run_dir, options.pod_uid)
        assert await asyncio.to_thread(ask, probe, "ready")
        dump = StateDump()
        telling.follow(dump, agent.parts())
        state: Any = dump.read()
        assert state["devices"]["usb-0781-5581-a1"]["offer"] == "cluster"
        assert state["ports"] == {"high free": 8, "super free": 8}
        assert state["agent"]["ready"] is True
        text = await scraped(options)
        assert 'usbdra_devices{offer="cluster",speed="high"} 1.0' in text
        assert 'usbdra_ports{hub="high",state="free"} 8.0' in text
        assert "usbdra_agent_ready 1.0" in text
        assert "usbdra_collect_errors_total 0.0" in text
    assert offered(api) == ["usb-0781-5581-a1"], "slices outlive a stop: the next agent has them"
    assert list(kubelet.rglob("*.sock")) == []
