# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from tests.fakes.tcp import TcpPair
from tests.waiting import until
from usbdra.discovery.hostwatch import FILES, HostWatch


class Calls:
    """Counts calls and lets a test wait for them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    async def reach(self, count: int) -> None:
        await until(lambda: self.count >= count)


async def test_a_change_is_told_once_for_a_burst_and_again_for_the_next(tmp_path: Path) -> None:
    """Urgent data makes a socket signal EPOLLPRI, as a changed mount makes mountinfo."""
    calls = Calls()
    with TcpPair() as pair:
        watch = HostWatch(
            str(tmp_path), calls, settle=0.01, opener=lambda path: os.dup(pair.ours.fileno())
        )
        pair.peer.send(b"always readable, and no reason to wake")
        await asyncio.sleep(0.02)
        assert calls.count == 0
        for count in (1, 2):
            pair.peer.send(b"!", socket.MSG_OOB)
            await calls.reach(count)
            await asyncio.sleep(0.015)
            assert calls.count == count
        watch.close()
        watch.close()


async def test_files_that_cannot_tell_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / FILES[1]).write_text("22 1 0:21 / /proc rw - proc proc rw\n")
    watch = HostWatch(str(tmp_path), Calls())
    watch.close()


async def test_a_stop_before_a_burst_has_settled_tells_nothing(tmp_path: Path) -> None:
    calls = Calls()
    with TcpPair() as pair:
        watch = HostWatch(
            str(tmp_path), calls, settle=0.2, opener=lambda path: os.dup(pair.ours.fileno())
        )
        pair.peer.send(b"!", socket.MSG_OOB)
        await asyncio.sleep(0.01)
        watch.close()
        await asyncio.sleep(0.2)
    assert calls.count == 0


async def test_the_machines_own_files_can_be_waited_for() -> None:
    opened: list[int] = []

    def note(path: str) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        opened.append(descriptor)
        return descriptor

    watch = HostWatch("", Calls(), opener=note)
    assert opened
    for descriptor in opened:  # registered, not turned away as plain files are
        assert os.fstat(descriptor)
    watch.close()
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
