# SPDX-License-Identifier: Apache-2.0
"""The SDK behind our spans: whose trace it is, what is bounded, and a collector that is away."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import usbdra
from tests.fakes.traces import Collector, Kept
from usbdra import log
from usbdra.tracing import otel, spans
from usbdra.tracing.otel import OtelTracer
from usbdra.tracing.spans import Kind, span

PEER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Make = Callable[[SpanExporter], OtelTracer]
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Our log's lines of this test, read when called."""
    ours, theirs = logging.getLogger("usbdra"), logging.getLogger("opentelemetry")
    before = [(one, one.handlers[:], one.level, one.propagate) for one in (ours, theirs)]
    stream = StringIO()
    log.setup("info", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[OtelTracer] = []

    def one(exporter: SpanExporter) -> OtelTracer:
        made.append(OtelTracer("t", exporter))
        return made[-1]

    yield one
    for tracer in made:
        tracer.close()


def test_a_peers_span_is_gone_on_with(make: Make) -> None:
    kept = Kept()
    tracer = make(kept)
    with tracer.entry("grant", Kind.SERVER, PEER):
        said = spans.traceparent()
    tracer.flush()
    step = kept.named("grant")
    assert step.trace == PEER[3:35]
    assert step.parent == PEER[36:52]
    assert said == f"00-{step.trace}-{step.span}-01"


@pytest.mark.parametrize("text", ["", "00-junk", PEER + "0", PEER.upper()])
def test_what_is_no_span_begins_a_trace(make: Make, text: str) -> None:
    kept = Kept()
    tracer = make(kept)
    with tracer.entry("grant", Kind.SERVER, text):
        pass
    tracer.flush()
    step = kept.named("grant")
    assert step.parent == ""
    assert step.trace != PEER[3:35]


def test_what_the_peer_does_not_sample_is_not_sampled_here_nor_further_on(make: Make) -> None:
    kept = Kept()
    tracer = make(kept)
    with tracer.entry("grant", Kind.SERVER, PEER[:-1] + "0"), span("acquire") as step:
        step.set(device="d")
        spans.phase("bind", 1.0)
        said = spans.traceparent()
    tracer.flush()
    assert kept.all == []
    assert said.startswith(PEER[:35])
    assert said.endswith("-00")


def test_the_environment_says_how_much_is_sampled(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the chart sets it: a part of what begins here, all of what a peer samples."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    kept = Kept()
    tracer = make(kept)
    with tracer.entry("ours", Kind.SERVER), span("step"):
        pass
    with tracer.entry("theirs", Kind.SERVER, PEER):
        pass
    tracer.flush()
    assert [step.name for step in kept.all] == ["theirs"]


def test_texts_and_their_number_are_bounded(make: Make) -> None:
    kept = Kept()
    tracer = make(kept)
    many = {f"a{number:02}": "é" * 500 for number in range(40)}
    with tracer.entry("root", Kind.SERVER, **many), span("step", bad="\udcff") as step:
        step.set(**many)
    tracer.flush()
    for one in kept.all:
        assert len(one.attributes) == otel.MAX_ATTRIBUTES
        assert all(len(v.encode()) <= otel.MAX_VALUE_BYTES for v in one.attributes.values())


def test_it_says_who_it_is_unless_the_environment_does(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resource() -> dict[str, object]:
        return dict(make(Kept())._provider.resource.attributes)

    assert resource()["service.name"] == "t"
    assert resource()["service.version"] == usbdra.__version__
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.node.name=node-a")
    assert resource()["service.name"] == "mine"
    assert resource()["k8s.node.name"] == "node-a"


def test_lines_of_a_trace_carry_its_id(make: Make, lines: Lines) -> None:
    tracer = make(Kept())
    with tracer.entry("root", Kind.SERVER), span("step"):
        trace_id = spans.traceparent()[3:35]
        logging.getLogger("usbdra.t").info("inside")
    with tracer.entry("root", Kind.SERVER, PEER[:-1] + "0"):
        logging.getLogger("usbdra.t").info("not sampled")
    logging.getLogger("usbdra.t").info("outside")
    assert [line.get("trace_id") for line in lines()] == [trace_id, None, None]


class Away(SpanExporter):
    """A collector that answers nothing until the exporter is told to end."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.over.wait()
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.over.set()


def test_a_collector_that_is_away_costs_neither_time_nor_memory(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "STOP_SECONDS", 0.01)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    away = Away()
    tracer = make(away)
    for _ in range(500):
        with tracer.entry("root", Kind.SERVER):
            pass
    assert away.asked.wait(30)
    (processor,) = tracer._provider._active_span_processor._span_processors
    waiting = processor._batch_processor._queue  # type: ignore[attr-defined]
    assert len(waiting) <= 64
    tracer.close()
    assert away.over.is_set(), "a stop does not wait for it"


def test_what_the_sdk_says_is_told_in_our_lines_once(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        otel.tracer("t").close()
    theirs = logging.getLogger("opentelemetry.exporter")
    for code in (503, 502):
        theirs.error("Failed to export %s batch code: %s", "spans", code)
    theirs.info("nothing of interest")
    (line,) = lines()
    assert line["message"] == (
        "traces: opentelemetry.exporter: Failed to export spans batch code: 503"
    )
    assert line["level"] == "error"
