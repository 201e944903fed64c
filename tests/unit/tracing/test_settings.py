# SPDX-License-Identifier: Apache-2.0
"""The variables of OpenTelemetry: which turn traces on, and what is refused with a clear word."""

from __future__ import annotations

import pytest

from usbdra.errors import ConfigError
from usbdra.tracing import settings

ON = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_TRACES_SAMPLER": "always_on", "OTEL_SERVICE_NAME": "x"},
        ON | {"OTEL_SDK_DISABLED": "true"},
        ON | {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"},
    ],
)
def test_without_an_address_traces_are_off(env: dict[str, str]) -> None:
    assert settings.wanted(env) is False


@pytest.mark.parametrize(
    "env",
    [
        ON,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://[2001:db8::1]:4318/v1/traces"},
        ON | {"OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "otlp"},
        ON | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        ON | {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"},
        ON | {"OTEL_TRACES_SAMPLER_ARG": "", "OTEL_BSP_MAX_QUEUE_SIZE": "4096"},
    ],
)
def test_an_address_turns_them_on(env: dict[str, str]) -> None:
    assert settings.wanted(env) is True


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "'collector:4318' is no address"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://collector:4317", "is no address"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "is no address"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:port", "is no address"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:0", "is no address"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1", "is no address"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "'grpc' is none of http/protobuf; collectors"),
        ("OTEL_TRACES_EXPORTER", "console", "'console' is none of otlp, none"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "'sometimes' is none of always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "'1.5' is no number from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan", "'nan' is no number from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "ten", "'ten' is no number from 0 to 1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "'0' is no whole number from 1 to 65536"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "9" * 5000, "is no whole number"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "\N{ARABIC-INDIC DIGIT ONE}", "is no whole number"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "4096 is more than OTEL_BSP_MAX_QUEUE_SIZE"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon", "'soon' is no whole number"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_variable(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings.wanted(ON | {name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert text in str(caught.value)


def test_an_error_quotes_no_password() -> None:
    with pytest.raises(ConfigError) as caught:
        settings.wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://me:secret@collector"})
    assert "secret" not in str(caught.value)
    assert "collector" in str(caught.value)


def test_values_are_looked_at_only_where_traces_are_on() -> None:
    """A pod may bring variables for other programs' sake."""
    assert settings.wanted({"OTEL_TRACES_SAMPLER": "xray"}) is False
