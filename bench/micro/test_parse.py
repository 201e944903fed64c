# SPDX-License-Identifier: Apache-2.0
"""The status table of 240 ports: reading it against a plain read, parsing against plain Python.

Both with every port idle, and with every port in use. What is compared is called in turn: each
takes microseconds, and a machine changes its pace from one second to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from bench.conftest import Replay, in_turn
from tests.oracle import status as oracle
from usbdra._native import vhci

HEADER = b"hub port sta spd dev      sockfd local_busid\n"
CONTROLLERS, PORTS = 8, 30


def texts(used: bool) -> list[bytes]:
    """Eight controllers with 15 + 15 ports, as Debian's kernel prints them."""
    found = []
    for controller in range(CONTROLLERS):
        rows = [HEADER]
        for index in range(PORTS):
            hub, port = (b"hs" if index < 15 else b"ss"), controller * PORTS + index
            tail = (
                b"006 003 %08x %06d %d-%d" % (0x30000 + port, port + 9, controller + 5, index + 1)
                if used
                else b"004 000 00000000 000000 0-0"
            )
            rows.append(b"%s  %04d %s\n" % (hub, port, tail))
        found.append(b"".join(rows))
    return found


def plain_read(paths: list[str]) -> list[bytes]:
    """What any reader must pay: open, read, close."""
    found = []
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found.append(os.read(fd, 4096))
        os.close(fd)
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["idle", "used"])
def used(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, used: bool) -> list[str]:
    """The texts as files `status`, `status.1`, ..."""
    paths = []
    folder = tmp_path_factory.mktemp("vhci")
    for number, text in enumerate(texts(used)):
        path = folder / ("status" if number == 0 else f"status.{number}")
        path.write_bytes(text)
        paths.append(str(path))
    return paths


@pytest.fixture(scope="module")
def reads(stored: list[str]) -> dict[str, list[float]]:
    directory = os.fsencode(os.path.dirname(stored[0]))
    works: dict[str, Callable[[], object]] = {
        "plain": lambda: plain_read(stored),
        "ours": lambda: vhci.read_status(directory, CONTROLLERS),
        "oracle": lambda: oracle.parse(plain_read(stored)),
    }
    assert len(plain_read(stored)) == CONTROLLERS
    assert len(vhci.read_status(directory, CONTROLLERS)) == 240
    assert len(oracle.parse(plain_read(stored))) == 240
    return in_turn(works, rounds=100, calls=20)


@pytest.fixture(scope="module")
def parses(used: bool) -> dict[str, list[float]]:
    given = texts(used)
    works: dict[str, Callable[[], object]] = {
        "oracle": lambda: oracle.parse(given),
        "ours": lambda: vhci.parse(given),
    }
    assert len(oracle.parse(given)) == 240
    assert len(vhci.parse(given)) == 240
    return in_turn(works, rounds=100, calls=20)


def group(what: str, used: bool) -> str:
    return f"{what}, 240 ports {'in use' if used else 'idle'}"


def test_read_plain(replay: Replay, reads: dict[str, list[float]], used: bool) -> None:
    replay(group("read", used), reads["plain"], role="yardstick")


def test_read_and_parse(replay: Replay, reads: dict[str, list[float]], used: bool) -> None:
    replay(group("read", used), reads["ours"], role="ours", goal=1.3, wants="at most")


def test_read_and_oracle(replay: Replay, reads: dict[str, list[float]], used: bool) -> None:
    replay(group("read", used), reads["oracle"], role="plain Python")


def test_parse_oracle(replay: Replay, parses: dict[str, list[float]], used: bool) -> None:
    replay(group("parse", used), parses["oracle"], role="yardstick")


def test_parse(replay: Replay, parses: dict[str, list[float]], used: bool) -> None:
    replay(group("parse", used), parses["ours"], role="ours", goal=30, wants="at least")
