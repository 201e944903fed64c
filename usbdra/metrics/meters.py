# SPDX-License-Identifier: Apache-2.0
"""What a part counts, kept by prometheus_client; what it can look up is looked up when asked for.

Owns the registry. Nothing runs between two questions: gauges, and counters that the kernel or
another process keeps, are read by sources at that moment. A part that serves no metrics uses
SILENT and never loads the library.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from usbdra.metrics.families import Family, Kind

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Fact:
    """One value that was looked up: of which metric, its labels in order."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


Source = Callable[[], Awaitable[Iterable[Fact]]]
"""Looks facts up, now. One that fails costs its own facts and nothing else."""
Spread = Callable[[str, Mapping[Any, float]], list[Fact]]
"""See `spreader`."""


class Counting(Protocol):
    """What code that has something to count is given."""

    def count(self, name: str, *labels: str) -> None:
        """One more."""

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """It took so long."""


class Silent:
    """Counts nothing."""

    def count(self, name: str, *labels: str) -> None:
        """See Counting."""

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """See Counting."""


SILENT = Silent()


class Meters:
    """The metrics that `declared` says, each known label value from zero on.

    A label value that is not declared is our own mistake and raises KeyError, but for labels
    that have none declared.
    """

    def __init__(self, declared: Sequence[Family]) -> None:
        from prometheus_client import (
            CollectorRegistry,
            ProcessCollector,
            disable_created_metrics,
        )

        # When each counter was made: as many series again, for nothing.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._families = {family.name: family for family in declared}
        self._registry = CollectorRegistry(auto_describe=False)
        self._events = {f.name: _event(f, self._registry) for f in declared if not f.read}
        self._sources: list[Source] = []
        self._facts: dict[str, dict[tuple[str, ...], float]] = {}
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, name: str, *labels: str) -> None:
        """See Counting."""
        self._child(name, labels).inc()

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """See Counting."""
        self._child(name, labels).observe(seconds)

    def read(self, source: Source) -> None:
        """Ask `source`, too, from now on."""
        self._sources.append(source)

    async def text(self) -> bytes:
        """All metrics, as of now, in Prometheus's text format (CONTENT_TYPE)."""
        from prometheus_client import generate_latest

        facts: dict[str, dict[tuple[str, ...], float]] = {}
        for source in self._sources:
            try:
                for fact in await source():
                    self._require(fact.name, fact.labels)
                    facts.setdefault(fact.name, {})[fact.labels] = fact.value
            except Exception as error:  # whatever it is, the other numbers are worth having
                self.count("usbdra_collect_errors_total")
                text = f"{type(error).__name__}: {error}"
                log.warning("a metric cannot be read: %s", text, extra={"once": text})
        self._facts = facts
        return bytes(generate_latest(self._registry))

    def collect(self) -> Iterator[Metric]:
        """For the registry: what was looked up last."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, values in self._facts.items():
            family = self._families[name]
            kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
            metric = kind(name, family.help, labels=[label.name for label in family.labels])
            for labels, value in values.items():
                metric.add_metric(list(labels), value)
            yield metric

    def _child(self, name: str, labels: tuple[str, ...]) -> Any:
        self._require(name, labels)
        event = self._events[name]
        return event.labels(*labels) if labels else event

    def _require(self, name: str, labels: tuple[str, ...]) -> None:
        for label, value in zip(self._families[name].labels, labels, strict=True):
            if label.values and value not in label.values:
                raise KeyError(f"{name} has no {label.name}={value!r}")


def zeros(family: Family) -> Iterator[tuple[str, ...]]:
    """Every combination of its labels' values; none when a label's are not known."""
    if all(label.values for label in family.labels):
        yield from itertools.product(*(label.values for label in family.labels))


def spreader(declared: Sequence[Family]) -> Spread:
    """What makes facts of one metric: of the values that are given by labels, and a zero for
    every other combination of known label values."""
    families = {family.name: family for family in declared}

    def spread(name: str, found: Mapping[Any, float]) -> list[Fact]:
        return [Fact(name, found.get(labels, 0), labels) for labels in zeros(families[name])]

    return spread


def _event(family: Family, registry: CollectorRegistry) -> Counter | Histogram:
    from prometheus_client import Counter, Histogram

    names = [label.name for label in family.labels]
    event: Counter | Histogram
    if family.kind is Kind.HISTOGRAM:
        event = Histogram(
            family.name, family.help, names, registry=registry, buckets=family.buckets
        )
    else:
        event = Counter(family.name, family.help, names, registry=registry)
    if names:
        for labels in zeros(family):
            event.labels(*labels)
    return event
