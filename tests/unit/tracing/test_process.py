# SPDX-License-Identifier: Apache-2.0
"""Off, nothing of OpenTelemetry is loaded; on, what the environment says is what happens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fakes.traces import Collector
from usbdra.errors import ConfigError
from usbdra.tracing import otel
from usbdra.tracing.process import traced
from usbdra.tracing.spans import OFF, Kind, span

OFF_PROGRAM = """
import sys
import usbdra.agent.daemon, usbdra.cli.main, usbdra.exporter.process
from usbdra.tracing.process import traced
from usbdra.tracing.spans import Kind, span
with traced("usbdra-agent", {"OTEL_SERVICE_NAME": "x"}) as tracer:
    with tracer.entry("root", Kind.SERVER), span("step"):
        print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_off_nothing_of_it_is_loaded() -> None:
    words = [sys.executable, "-c", OFF_PROGRAM]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_off_is_one_object() -> None:
    with traced("x", {}) as tracer:
        assert tracer is OFF


def test_on_spans_arrive_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "STOP_SECONDS", 60.0)  # the end sends what is left
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        with (
            traced("usbdra-agent", collector.environment) as tracer,
            tracer.entry("root", Kind.SERVER, claim="lab/one"),
            span("step"),
        ):
            pass
        assert collector.path(collector.named("step")) == ["usbdra-agent root", "usbdra-agent step"]
        assert collector.named("root").attributes == {"usbdra.claim": "lab/one"}


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "usbdra.tracing.otel")
    monkeypatch.delattr("usbdra.tracing.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    with pytest.raises(ConfigError, match=r"\(opentelemetry\): pip install 'usbdra\[otel\]'"):
        traced("x", env).__enter__()


def test_what_only_the_exporter_refuses_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(service: str) -> None:
        raise ValueError("could not convert string to float: 'soon'")

    monkeypatch.setattr(otel, "tracer", refuse)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    with pytest.raises(ConfigError, match="traces cannot be sent as the OTEL_ variables say"):
        traced("x", env).__enter__()
