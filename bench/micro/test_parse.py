# SPDX-License-Identifier: Apache-2.0
"""The status table of 240 ports: reading it against a plain read, parsing against plain Python.

Both with every port idle, and with every port in use (the slow path of the parser).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

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


@pytest.fixture(params=[False, True], ids=["idle", "used"])
def used(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def stored(tmp_path: Path, used: bool) -> list[str]:
    """The texts as files `status`, `status.1`, ..."""
    paths = []
    for number, text in enumerate(texts(used)):
        path = tmp_path / ("status" if number == 0 else f"status.{number}")
        path.write_bytes(text)
        paths.append(str(path))
    return paths


def place(benchmark: BenchmarkFixture, group: str, used: bool, **info: object) -> None:
    benchmark.group = f"{group}, 240 ports {'in use' if used else 'idle'}"
    benchmark.extra_info.update(info)


def test_read_plain(benchmark: BenchmarkFixture, stored: list[str], used: bool) -> None:
    place(benchmark, "read", used, role="yardstick")
    assert len(benchmark(plain_read, stored)) == CONTROLLERS


def test_read_and_parse(benchmark: BenchmarkFixture, stored: list[str], used: bool) -> None:
    place(benchmark, "read", used, role="ours", goal=1.3, wants="at most")
    directory = os.fsencode(os.path.dirname(stored[0]))
    assert len(benchmark(vhci.read_status, directory, CONTROLLERS)) == 240


def test_read_and_oracle(benchmark: BenchmarkFixture, stored: list[str], used: bool) -> None:
    place(benchmark, "read", used, role="plain Python")
    assert len(benchmark(lambda: oracle.parse(plain_read(stored)))) == 240


def test_parse_oracle(benchmark: BenchmarkFixture, used: bool) -> None:
    place(benchmark, "parse", used, role="yardstick")
    assert len(benchmark(oracle.parse, texts(used))) == 240


def test_parse(benchmark: BenchmarkFixture, used: bool) -> None:
    place(benchmark, "parse", used, role="ours", goal=30, wants="at least")
    assert len(benchmark(vhci.parse, texts(used))) == 240
