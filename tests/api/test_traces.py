# SPDX-License-Identifier: Apache-2.0
"""What the chart sets up for traces arrives at a collector: its variables, in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.chart import manifests
from tests.contract.exporting import running
from tests.contract.importing import REF, importing
from tests.fakes.traces import Collector
from usbdra.tracing.otel import OtelTracer
from usbdra.tracing.process import traced


def variables(container: dict[str, Any], node: str) -> dict[str, str]:
    """Those of OpenTelemetry as the kubelet gives them to a container on this node."""
    found = {one["name"]: one.get("value", node) for one in container["env"]}
    return {
        name: value.replace("$(NODE_NAME)", found["NODE_NAME"])
        for name, value in found.items()
        if name.startswith("OTEL_")
    }


def containers(values: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Of the agent's pod, by name."""
    (agent,) = (
        m["spec"]["template"]["spec"]["containers"]
        for m in manifests(values)
        if (m["kind"], m["metadata"]["name"]) == ("DaemonSet", "usbdra-agent")
    )
    return {container["name"]: container for container in agent}


async def test_what_the_chart_sets_up_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector() as collector:
        pod = containers({"tracing.endpoint": collector.endpoint, "tracing.samplingRatio": "1.0"})
        agent, exporter = (variables(pod[name], "node-a") for name in ("agent", "exporter"))
        assert agent == exporter
        more = {"OTEL_BSP_SCHEDULE_DELAY": "20"}  # nobody waits five seconds in a test
        for name, value in (agent | more).items():
            monkeypatch.setenv(name, value)
        with traced("usbdra-agent", agent) as tracer:
            async with running(tmp_path / "a", tracer=tracer, variables=exporter | more) as world:
                async with importing(tmp_path / "b", world.exporter.port, tracer) as node:
                    await node.preparer.prepare(REF)
                    await node.preparer.unprepare(REF)
                await world.given_back()
                await collector.until("usbdra-exporter", "grant")
            assert isinstance(tracer, OtelTracer)
            tracer.flush()
    bind = collector.named("bind")
    assert collector.path(bind) == [
        "usbdra-agent NodePrepareResources",
        "usbdra-agent take",
        "usbdra-agent grant",
        "usbdra-exporter grant",
        "usbdra-exporter acquire",
        "usbdra-agent acquire",
        "usbdra-agent bind",
    ]
    assert {step.resource["k8s.node.name"] for step in collector.all} == {"node-a"}


def test_off_the_pod_has_no_variable_of_it() -> None:
    for container in containers({}).values():
        assert variables(container, "node-a") == {}
