# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket

import pytest

from tests.fakes.tcp import TcpPair
from usbdra.transport.ending import LinkEnd


async def test_the_peers_close_is_noticed() -> None:
    with TcpPair() as pair:
        end = LinkEnd(pair.ours)
        pair.peer.close()
        await asyncio.wait_for(end.ended, 2)
        end.close()


async def test_a_shutdown_by_whoever_else_holds_the_socket_is_noticed() -> None:
    with TcpPair() as pair:
        end = LinkEnd(pair.ours)
        other = pair.ours.dup()
        pair.ours.close()
        other.shutdown(socket.SHUT_RDWR)
        await asyncio.wait_for(end.ended, 2)
        other.close()
        end.close()


async def test_a_reset_is_noticed() -> None:
    with TcpPair() as pair:
        end = LinkEnd(pair.ours)
        pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        pair.peer.close()
        await asyncio.wait_for(end.ended, 2)
        end.close()


async def test_an_end_before_the_watch_is_noticed() -> None:
    with TcpPair() as pair:
        pair.peer.close()
        end = LinkEnd(pair.ours)
        await asyncio.wait_for(end.ended, 2)
        end.close()


async def test_data_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    woken = 0
    ready = LinkEnd._on_ready

    def count(self: LinkEnd) -> None:
        nonlocal woken
        woken += 1
        ready(self)

    monkeypatch.setattr(LinkEnd, "_on_ready", count)
    with TcpPair() as pair:
        end = LinkEnd(pair.ours)
        await asyncio.sleep(0)
        first = woken  # a new member may be reported once
        for _ in range(50):
            pair.peer.send(b"x" * 1000)
            await asyncio.sleep(0)
            pair.ours.recv(2000)
        assert woken == first
        assert not end.ended.done()
        end.close()
        end.close()
        assert end.ended.cancelled()
