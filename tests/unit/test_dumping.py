# SPDX-License-Identifier: Apache-2.0
"""State and level of a running process, by signals."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
from collections.abc import Iterator

import pytest

from tests.waiting import until
from usbdra import log
from usbdra.dumping import MAX_ITEMS, StateDump, answering, some

logger = logging.getLogger("usbdra.agent.daemon")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger("usbdra")
    before = (root.handlers[:], root.level, root.propagate)
    mine = io.StringIO()
    log.setup("warning", "json", mine)
    yield mine
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_sigusr2_is_one_line_with_the_whole_state_at_any_level(stream: io.StringIO) -> None:
    dump = StateDump()
    dump.add("claims", lambda: {"u1": {"claim": "lab/one", "devices": ["stick"]}})
    nothing: dict[str, dict[str, object]] = {}
    dump.add("broken", lambda: nothing["nothing"])
    with answering(dump):
        os.kill(os.getpid(), signal.SIGUSR2)
        await until(stream.getvalue)
    (line,) = lines(stream)
    assert line["message"] == "state"
    assert line["state"] == {
        "claims": {"u1": {"claim": "lab/one", "devices": ["stick"]}},
        "broken": {"error": "KeyError: 'nothing'"},
    }


async def test_sigusr1_turns_debug_on_and_the_level_of_the_start_again(
    stream: io.StringIO,
) -> None:
    with answering(StateDump()):
        logger.debug("before")
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(stream.getvalue)
        logger.debug("between")
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(lambda: stream.getvalue().count("level changed") == 2)
        logger.info("after")
        logger.warning("still")
    said = [(line["message"], line.get("to")) for line in lines(stream)]
    assert said == [
        ("log level changed", "debug"),
        ("between", None),
        ("log level changed", "warning"),
        ("still", None),
    ]


async def test_after_the_end_a_late_signal_ends_nothing() -> None:
    with answering(StateDump()):
        pass
    os.kill(os.getpid(), signal.SIGUSR2)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_a_dump_is_bounded() -> None:
    items = {str(n): n for n in range(MAX_ITEMS + 3)}
    found = some(items)
    assert len(found) == MAX_ITEMS + 1
    assert found["more"] == 3
    assert some({"a": 1}) == {"a": 1}
