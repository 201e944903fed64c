# SPDX-License-Identifier: Apache-2.0
"""The tracer of one process, as its environment asks for it.

Owns the decision to load OpenTelemetry at all, and its end. Must not make spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from usbdra.errors import ConfigError
from usbdra.tracing import settings
from usbdra.tracing.spans import OFF, Tracer


@contextmanager
def traced(service: str, env: Mapping[str, str]) -> Iterator[Tracer]:
    """Trace as the variables of OpenTelemetry in `env`, the process's own, say; OFF without any.

    Raises ConfigError for a value that cannot be used, and where OpenTelemetry is not installed.
    """
    if not settings.wanted(env):
        yield OFF
        return
    try:
        from usbdra.tracing import otel

        tracer = otel.tracer(service)
    except ImportError as error:
        raise ConfigError(
            f"traces are asked for and OpenTelemetry is not installed ({error.name}): "
            "pip install 'usbdra[otel]'"
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"traces cannot be sent as the OTEL_ variables say: {error}") from error
    try:
        yield tracer
    finally:
        tracer.close()
