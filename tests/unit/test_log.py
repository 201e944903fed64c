# SPDX-License-Identifier: Apache-2.0
"""The form of log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from usbdra import log

logger = logging.getLogger("usbdra.exporter.server")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger("usbdra")
    before = (root.handlers[:], root.level, root.propagate)
    yield io.StringIO()
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def test_text_line_with_fields(stream: io.StringIO) -> None:
    log.setup("info", "text", stream)
    logger.info("refused %s", "b", extra={"reason": "Busy", "holder": "claim a/b of c"})
    logger.debug("not shown")
    (line,) = stream.getvalue().splitlines()
    stamp, rest = line.split(" ", 1)
    assert stamp.endswith("Z")
    assert rest == ('INFO exporter.server: refused b reason=Busy holder="claim a/b of c"')


def test_a_peers_text_cannot_forge_a_line(stream: io.StringIO) -> None:
    log.setup("info", "text", stream)
    logger.warning("peer says %s", "x\n2026 INFO ok\x1b[2J", extra={"name_": "a\nb"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_json_line_with_context_and_exception(stream: io.StringIO) -> None:
    log.setup("debug", "json", stream)
    with log.context(claim="ns/c"), log.context(node="b"):
        try:
            raise ValueError("odd")
        except ValueError:
            logger.exception("failed", extra={"device": "1-1"})
    logger.debug("after")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["logger"]) == ("error", "exporter.server")
    assert (first["claim"], first["node"], first["device"]) == ("ns/c", "b", "1-1")
    assert first["exception"].endswith("ValueError: odd")
    assert "claim" not in second


def test_a_second_setup_replaces_the_first(stream: io.StringIO) -> None:
    log.setup("info", "text", io.StringIO())
    log.setup("info", "text", stream)
    logger.info("once")
    assert stream.getvalue().count("once") == 1


def test_a_warning_is_said_once(stream: io.StringIO) -> None:
    log.setup("info", "text", stream)
    for _ in range(2):
        logger.warning("odd device", extra={"once": ("odd", "1-1")})
        logger.warning("each time")
    assert stream.getvalue().count("odd device") == 1
    assert stream.getvalue().count("each time") == 2
    assert "once=" not in stream.getvalue()


def test_a_flood_of_warnings_is_remembered_within_bounds() -> None:
    once = log.OnceFilter(limit=2)
    passed = [once.filter(logging.makeLogRecord({"once": key})) for key in "abca"]
    assert passed == [True, True, True, True]  # c pushed a out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_at_a_terminal_get_text_and_everybody_else_json(stream: io.StringIO) -> None:
    terminal = Terminal()
    for each in (terminal, stream):
        log.setup("info", "auto", each)
        logger.info("one", extra={"device": "1-1", "some": {"a": 1}})
    assert terminal.getvalue().endswith('INFO exporter.server: one device=1-1 some={"a": 1}\n')
    assert json.loads(stream.getvalue())["some"] == {"a": 1}
