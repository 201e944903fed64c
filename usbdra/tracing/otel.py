# SPDX-License-Identifier: Apache-2.0
"""Spans as the OpenTelemetry SDK makes them, sent to a collector by OTLP over HTTP.

Owns the SDK: nothing else loads it, and it is loaded only where traces are on. What ends is put
into a queue of bounded length (OTEL_BSP_MAX_QUEUE_SIZE) and sent by a thread; while the collector
is away the oldest are dropped and nobody waits. The SDK's global state is not used: two agents in
one process are two tracers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.sdk.resources import (
    SERVICE_NAME,
    SERVICE_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

import usbdra
from usbdra import log
from usbdra.tracing import traceparent
from usbdra.tracing.spans import Kind, Scope, Setter, Span, Value

_log = logging.getLogger(__name__)

MAX_VALUE_BYTES = 320
"""Of an attribute's text; the longest is a claim's, two names of 63 and 253 letters."""
MAX_ATTRIBUTES = 16
STOP_SECONDS = 2.0
"""How long a stop waits for the last spans to be sent."""

_KINDS = {
    Kind.INTERNAL: api.SpanKind.INTERNAL,
    Kind.CLIENT: api.SpanKind.CLIENT,
    Kind.SERVER: api.SpanKind.SERVER,
}
_ROOT = Context()


class OtelTracer:
    """See Tracer. `exporter` takes what ended, in batches; sampler and sizes are those of the
    process's environment."""

    def __init__(self, service: str, exporter: SpanExporter) -> None:
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which the detector reads, win.
        said = {SERVICE_NAME: service, SERVICE_VERSION: usbdra.__version__}
        limits = SpanLimits(max_span_attributes=MAX_ATTRIBUTES, max_events=0, max_links=0)
        self._exporter = exporter
        self._provider = TracerProvider(
            resource=Resource.create(said).merge(OTELResourceDetector().detect()),
            span_limits=limits,
            shutdown_on_exit=False,  # it would wait half a minute for a collector that is away
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("usbdra", usbdra.__version__)

    @contextmanager
    def entry(
        self, name: str, kind: Kind, parent: str = "", **attributes: Value
    ) -> Iterator[Setter]:
        """See Tracer. Lines logged inside carry `trace_id`, unless the trace is not sampled."""
        made = self._tracer.start_span(
            name, _remote(parent), _KINDS[kind], attributes=_attributes(attributes)
        )
        span = _OtelSpan(self._tracer, made)
        with Scope(span), _logged(made):
            yield span

    def flush(self) -> None:
        """Send what has ended until now; blocks."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what is left, but do not wait long: the process is to end."""
        stopping = threading.Thread(target=self._provider.shutdown, daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        if stopping.is_alive():
            self._exporter.shutdown()  # ends its pause between two attempts


class _OtelSpan:
    """See spans.py Span."""

    def __init__(self, tracer: api.Tracer, span: api.Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return str(
            traceparent.TraceParent(
                context.trace_id, context.span_id, bool(context.trace_flags.sampled)
            )
        )

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(_attributes(attributes))

    def child(self, name: str, kind: Kind, **attributes: Value) -> Span:
        if not self._span.is_recording() and not self._span.get_span_context().trace_flags.sampled:
            return self  # nobody will see it, and the peer is to be told the same
        return _OtelSpan(self._tracer, self._begin(name, kind, attributes))

    def past(self, name: str, seconds: float) -> None:
        now = time.time_ns()
        self._begin(name, Kind.INTERNAL, {}, now - int(seconds * 1e9)).end(now)

    def end(self, error: str = "") -> None:
        if error and self._span.is_recording():
            self._span.set_attribute("error.type", error)
            self._span.set_status(api.StatusCode.ERROR)
        self._span.end()

    def _begin(
        self, name: str, kind: Kind, attributes: Mapping[str, Value], at: int | None = None
    ) -> api.Span:
        parent = api.set_span_in_context(self._span, _ROOT)
        return self._tracer.start_span(
            name, parent, _KINDS[kind], attributes=_attributes(attributes), start_time=at
        )


def tracer(service: str) -> OtelTracer:
    """A tracer that sends to where the environment says. Raises ValueError, OSError for a value
    that the exporter cannot use."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    _hear(logging.getLogger("opentelemetry"))
    return OtelTracer(service, OTLPSpanExporter())


class _Relay(logging.Handler):
    """Has what the SDK says go where our lines go, each kind of it once: a collector that is away
    is no news every few seconds."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one line on."""
        text = f"{record.name}: {record.getMessage()}"
        _log.log(record.levelno, "traces: %s", text, extra={"once": str(record.msg)})


def _hear(logger: logging.Logger) -> None:
    logger.handlers[:] = [_Relay(logging.WARNING)]
    logger.propagate = False


def _logged(span: api.Span) -> AbstractContextManager[None]:
    context = span.get_span_context()
    known = {"trace_id": f"{context.trace_id:032x}"} if context.trace_flags.sampled else {}
    return log.context(**known)


def _remote(text: str) -> Context:
    """The context of a peer's span; of none, for a text that is none."""
    found = traceparent.parse(text)
    if found is None:
        return _ROOT
    flags = api.TraceFlags(api.TraceFlags.SAMPLED if found.sampled else api.TraceFlags.DEFAULT)
    span = api.SpanContext(found.trace_id, found.span_id, is_remote=True, trace_flags=flags)
    return api.set_span_in_context(api.NonRecordingSpan(span), _ROOT)


def _attributes(said: Mapping[str, Value]) -> dict[str, Value]:
    return {f"usbdra.{name}": _bounded(value) for name, value in said.items()}


def _bounded(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "replace")[:MAX_VALUE_BYTES].decode("utf-8", "ignore")
