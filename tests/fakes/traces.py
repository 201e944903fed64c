# SPDX-License-Identifier: Apache-2.0
"""Where spans go: a collector on loopback that takes OTLP over HTTP, and what it was told.

The messages are decoded with OpenTelemetry's own protobuf classes, so what arrives here is what a
real collector would read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from usbdra.tracing import settings


@dataclass(frozen=True)
class Step:
    """A span as it arrived; `parent` is "" for the first one of a trace, `start` and `took` are
    nanoseconds. `resource` is what its process says of itself, `service` the name of it."""

    resource: dict[str, Any]
    name: str
    trace: str
    span: str
    parent: str
    kind: str
    attributes: dict[str, Any]
    start: int
    took: int

    @property
    def service(self) -> str:
        return str(self.resource["service.name"])


class Steps:
    """Spans that arrived."""

    def __init__(self) -> None:
        self.all: list[Step] = []

    def named(self, name: str) -> Step:
        """The only one of this name."""
        (found,) = (step for step in self.all if step.name == name)
        return found

    def path(self, step: Step) -> list[str]:
        """`service name` of a span and of all it is below, the first one of its trace first."""
        by_id = {one.span: one for one in self.all}
        found = [f"{step.service} {step.name}"]
        while step.parent:
            step = by_id[step.parent]
            found.insert(0, f"{step.service} {step.name}")
        return found

    def traces(self) -> set[str]:
        """All trace ids."""
        return {step.trace for step in self.all}


class Collector(Steps):
    """`with`: listens on a port of loopback; `environment` has a process send to `endpoint`."""

    def __enter__(self) -> Self:
        self._server = _Server(self._take)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    async def until(self, service: str, name: str, count: int = 1) -> None:
        """When so many spans have come; what their process ended before is here as well."""
        async with asyncio.timeout(45):
            while count > sum((one.service, one.name) == (service, name) for one in self.all):
                await asyncio.sleep(0.005)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {settings.ENDPOINTS[1]: self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20"}

    def _take(self, path: str, body: bytes) -> bytes:
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            said = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                assert scope.scope.name == "usbdra"
                self.all += [_step(span, said) for span in scope.spans]
        return ExportTraceServiceResponse().SerializeToString()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, take: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.take = take


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.take(self.path, body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Kept(Steps, SpanExporter):
    """What a tracer of this process has ended, once it is flushed."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.all += [_kept(span) for span in spans]
        return SpanExportResult.SUCCESS


def _step(span: Span, resource: dict[str, Any]) -> Step:
    return Step(
        resource,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        _attributes(span.attributes),
        span.start_time_unix_nano,
        span.end_time_unix_nano - span.start_time_unix_nano,
    )


def _attributes(items: Iterable[KeyValue]) -> dict[str, Any]:
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value") or "string_value")
        for item in items
    }


def _kept(span: ReadableSpan) -> Step:
    context = span.context
    assert context is not None
    assert span.start_time is not None
    assert span.end_time is not None
    return Step(
        dict(span.resource.attributes),
        span.name,
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{span.parent.span_id:016x}" if span.parent else "",
        span.kind.name,
        dict(span.attributes or {}),
        span.start_time,
        span.end_time - span.start_time,
    )
