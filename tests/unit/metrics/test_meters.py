# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads: zeros from the start, counts, and facts that are looked up when asked."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from usbdra.metrics.families import Family, Kind, Label
from usbdra.metrics.meters import SILENT, Fact, Meters, spreader

RESULT = Label("result", ("ok", "Busy"))
DECLARED = (
    Family("t_tries_total", Kind.COUNTER, "Tries.", (RESULT,)),
    Family("t_plain_total", Kind.COUNTER, "Plain."),
    Family("t_took_seconds", Kind.HISTOGRAM, "Time.", (Label("phase", ("a", "b")),)),
    Family("t_ports", Kind.GAUGE, "Ports.", (Label("hub", ("x", "y")),), read=True),
    Family("t_bytes_total", Kind.COUNTER, "Bytes.", (Label("port", bound="ports"),), read=True),
    Family("usbdra_collect_errors_total", Kind.COUNTER, "Errors."),
)


async def values(meters: Meters) -> dict[str, float]:
    """Every sample by name and labels."""
    text = (await meters.text()).decode()
    return {
        f"{s.name}{sorted(s.labels.values())}": s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name.startswith(("t_", "usbdra_"))
    }


async def test_counters_and_times_start_with_a_zero_for_each_known_value() -> None:
    found = await values(Meters(DECLARED))
    assert found["t_tries_total['ok']"] == found["t_tries_total['Busy']"] == 0
    assert found["t_plain_total[]"] == 0
    assert found["t_took_seconds_count['a']"] == found["t_took_seconds_count['b']"] == 0
    assert not [name for name in found if name.startswith(("t_ports", "t_bytes"))]


async def test_counting() -> None:
    meters = Meters(DECLARED)
    meters.count("t_tries_total", "Busy")
    meters.count("t_plain_total")
    meters.observe("t_took_seconds", 0.2, "a")
    found = await values(meters)
    assert found["t_tries_total['Busy']"] == found["t_plain_total[]"] == 1
    assert found["t_took_seconds_sum['a']"] == 0.2
    assert found["t_took_seconds_bucket['0.1', 'a']"] == 0
    assert found["t_took_seconds_bucket['0.25', 'a']"] == 1


async def test_facts_are_looked_up_at_each_question_and_forgotten() -> None:
    meters, spread, links = Meters(DECLARED), spreader(DECLARED), {"3": 7.0, "4": 9.0}

    async def source() -> Iterable[Fact]:
        ports = spread("t_ports", {("x",): 2})
        return [*ports, *(Fact("t_bytes_total", n, (port,)) for port, n in links.items())]

    meters.read(source)
    found = await values(meters)
    assert (found["t_ports['x']"], found["t_ports['y']"]) == (2, 0)
    assert (found["t_bytes_total['3']"], found["t_bytes_total['4']"]) == (7, 9)
    del links["3"]
    assert "t_bytes_total['3']" not in await values(meters)


async def test_a_source_that_fails_costs_its_own_facts() -> None:
    meters = Meters(DECLARED)

    async def bad() -> Iterable[Fact]:
        raise OSError("no such file")

    async def good() -> Iterable[Fact]:
        return [Fact("t_ports", 1, ("x",))]

    meters.read(bad)
    meters.read(good)
    found = await values(meters)
    assert found["usbdra_collect_errors_total[]"] == 1
    assert found["t_ports['x']"] == 1


def test_a_value_that_is_not_declared_is_our_mistake() -> None:
    with pytest.raises(KeyError, match="result='Odd'"):
        Meters(DECLARED).count("t_tries_total", "Odd")


def test_without_a_listener_nothing_is_counted() -> None:
    SILENT.count("t_tries_total", "Odd")
    SILENT.observe("t_took_seconds", 1.0)
