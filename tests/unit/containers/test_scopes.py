# SPDX-License-Identifier: Apache-2.0
"""What systemd is told of a container's devices, by a bus in memory and by one that is away."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from usbdra.containers import scopes
from usbdra.containers.rules import READ, READ_WRITE, DeviceNumber
from usbdra.containers.scopes import Scopes, missing, unit_of

UNIT = f"cri-containerd-{'4f' * 32}.scope"
STICK, DISK = DeviceNumber(189, 130), DeviceNumber(8, 16, block=True)


class FakeBus:
    """One scope. allowed: its DeviceAllow; told: what was set."""

    def __init__(self, policy: str, *allowed: tuple[str, str]) -> None:
        self.policy, self.allowed = policy, list(allowed)
        self.told: list[Any] = []
        self.calls: list[str] = []
        self.error: OSError | None = None

    async def call(
        self, path: str, interface: str, method: str, signature: str = "", *body: Any
    ) -> tuple[Any, ...]:
        self.calls.append(method)
        if self.error is not None:
            raise self.error
        match method:
            case "GetUnit":
                assert body == (UNIT,)
                return ("/unit",)
            case "Get":
                assert (path, body[0]) == ("/unit", "org.freedesktop.systemd1.Scope")
                found = {"DeviceAllow": self.allowed, "DevicePolicy": self.policy}
                return (("?", found[body[1]]),)
            case "SetUnitProperties":
                assert body[:2] == (UNIT, True)
                self.told += body[2]
        return ()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[FakeBus]:
        yield self


def test_a_scope_with_a_list_gets_what_it_lacks_and_that_is_applied() -> None:
    bus = FakeBus("strict", ("char-pts", "rwm"), ("/dev/char/1:3", "rwm"))
    Scopes(bus.connected).allow(UNIT, {STICK: READ_WRITE, DISK: READ})
    entries = [("/dev/char/189:130", "rw"), ("/dev/block/8:16", "r")]
    assert bus.told == [("DeviceAllow", ("a(ss)", sorted(entries, reverse=True)))]
    assert bus.calls[-1] == "Ping"


def test_what_it_has_is_not_told_again() -> None:
    bus = FakeBus("strict", ("/dev/char/189:130", "rwm"))
    Scopes(bus.connected).allow(UNIT, {STICK: READ_WRITE})
    assert bus.told == []


def test_a_scope_without_a_list_stays_without() -> None:
    """The first entry would deny all else: crun 1.8 makes such scopes."""
    bus = FakeBus("auto")
    Scopes(bus.connected).allow(UNIT, {STICK: READ_WRITE})
    assert bus.told == []


def test_an_entry_that_is_too_narrow_is_widened_and_loses_nothing() -> None:
    assert missing({"/dev/char/189:130": "m"}, {STICK: READ}) == [("/dev/char/189:130", "rm")]


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "denied"), TimeoutError()], ids=["denied", "silent"]
)
def test_a_bus_that_says_no_is_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    bus = FakeBus("strict")
    bus.error = error
    Scopes(bus.connected).allow(UNIT, {STICK: READ_WRITE})
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert UNIT in line.getMessage()


# jeepney leaves a connection that was refused to be closed by its finalizer.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_host_without_a_bus_and_one_that_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Scopes.of_host(tmp_path).allow(UNIT, {STICK: READ_WRITE})
    assert "No such file" in caplog.text
    asyncio.run(_asked_of_a_stranger(tmp_path))


async def _asked_of_a_stranger(folder: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"REJECTED\r\n")
        writer.close()
        await writer.wait_closed()

    socket = folder / "bus"
    async with await asyncio.start_unix_server(refuse, socket):
        with pytest.raises(OSError, match="the system bus"):
            async with scopes.system_bus(socket):
                pass


def test_only_a_scope_is_systemds() -> None:
    assert unit_of(f"/kubepods.slice/kubepods-pod1.slice/{UNIT}") == UNIT
    assert unit_of(f"/kubepods/pod1/{'4f' * 32}") is None
