# SPDX-License-Identifier: Apache-2.0
"""A variable of OpenTelemetry that cannot be used ends each program that traces at its start."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.unit.cli.conftest import Cli


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """The programs set it up for themselves."""
    logger = logging.getLogger("usbdra")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.mark.parametrize("words", [["agent", "--node=a"], ["serve", "--plain"], ["exporter"]])
def test_a_wrong_variable_is_an_error_of_the_start(
    words: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usbdra.exporter.process.require_no_privilege", lambda: None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "ten")
    done = cli(*words)
    assert done.code == 2
    assert "OTEL_TRACES_SAMPLER_ARG: 'ten' is no number from 0 to 1" in done.err
