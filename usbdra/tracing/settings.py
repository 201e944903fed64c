# SPDX-License-Identifier: Apache-2.0
"""Whether traces are on, and the check of what OpenTelemetry's own variables say. Pure.

Owns no setting: names and meanings are those that every program with OpenTelemetry has
(https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). Its SDK goes on
with a default where it cannot read one; here that is an error, as with our own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from usbdra.errors import ConfigError, shown

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Each alone turns traces on; the first is a whole address, the second goes before /v1/traces."""

SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
MAX_QUEUE = 65536
"""Spans that wait for a collector at the most: some 2 KiB each."""


def wanted(env: Mapping[str, str]) -> bool:
    """Whether the environment turns traces on. Raises ConfigError that names a variable whose
    value cannot be used; one that is empty is none."""
    given = {name: value for name, value in env.items() if name.startswith("OTEL_") and value}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if given.get("OTEL_TRACES_EXPORTER") == "none" or not any(n in given for n in ENDPOINTS):
        return False
    for name, check in _CHECKS.items():
        if name in given:
            _checked(name, given[name], check)
    queue, batch = (int(given.get(name, default)) for name, default in _SIZES)
    if batch > queue:
        raise ConfigError(f"{_SIZES[1][0]}: {batch} is more than {_SIZES[0][0]}, {queue}")
    return True


def _checked(name: str, value: str, check: Callable[[str], object]) -> None:
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _address(value: str) -> None:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # of the port, or of an IPv6 address
        usable = False
    if not usable:
        # Not quoted with its user: that may be a password.
        raise ValueError(f"{shown(value.rpartition('@')[2])} is no address: http://collector:4318")


def _choice(*allowed: str, hint: str = "") -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in allowed:
            raise ValueError(f"{shown(value)} is none of {', '.join(allowed)}{hint}")

    return check


def _part(value: str) -> None:
    try:
        known = 0 <= float(value) <= 1
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{shown(value)} is no number from 0 to 1")


def _whole(high: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        if not (value.isascii() and value.isdigit()) or not 1 <= int(value[:10]) <= high:
            raise ValueError(f"{shown(value)} is no whole number from 1 to {high}")

    return check


_PROTOCOL = _choice("http/protobuf", hint="; collectors take that at port 4318")
_DAY_MS = 86_400_000
_SIZES = (("OTEL_BSP_MAX_QUEUE_SIZE", "2048"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"))

_CHECKS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(ENDPOINTS, _address),
    "OTEL_EXPORTER_OTLP_PROTOCOL": _PROTOCOL,
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": _PROTOCOL,
    "OTEL_TRACES_EXPORTER": _choice("otlp", "none"),
    "OTEL_TRACES_SAMPLER": _choice(*SAMPLERS),
    "OTEL_TRACES_SAMPLER_ARG": _part,
    "OTEL_BSP_SCHEDULE_DELAY": _whole(_DAY_MS),
    **{name: _whole(MAX_QUEUE) for name, _ in _SIZES},
}
