# SPDX-License-Identifier: Apache-2.0
"""The board of health and what its watchers see."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from tests.waiting import patience
from usbdra._pb import dra_health_v1_pb2 as pb
from usbdra.plugin.health import (
    RESEND_SECONDS,
    STALE_SECONDS,
    DeviceHealth,
    Health,
    HealthBoard,
    HealthService,
)

GOOD = DeviceHealth("usb-a", "stick", Health.HEALTHY)
LOST = DeviceHealth("usb-a", "stick", Health.UNHEALTHY, "LinkLost")


def test_words_have_their_numbers_on_the_wire() -> None:
    assert {h.name: h.value for h in Health} == dict(pb.HealthStatus.items())


def test_repeats_come_well_before_the_kubelet_forgets() -> None:
    assert RESEND_SECONDS * 2 < STALE_SECONDS


async def test_all_that_is_known_first_then_at_every_change() -> None:
    board = HealthBoard()
    board.set(GOOD)
    async with aclosing(board.watch()) as states:
        assert await anext(states) == (GOOD,)
        board.set(LOST)
        board.set(DeviceHealth("usb-a", "second", Health.HEALTHY))
        assert await anext(states) == (LOST, DeviceHealth("usb-a", "second", Health.HEALTHY))
        board.remove("usb-a", "second")
        assert await anext(states) == (LOST,)


async def test_what_is_no_news_wakes_nobody() -> None:
    board = HealthBoard()
    board.set(GOOD)
    async with aclosing(board.watch()) as states:
        await anext(states)
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0)
        board.set(DeviceHealth("usb-a", "stick", Health.HEALTHY))
        board.remove("usb-a", "unknown")
        await asyncio.sleep(0.005)
        assert not waiting.done()
        board.set(LOST)
        assert await waiting == (LOST,)


async def test_the_same_is_said_again_in_time() -> None:
    board = HealthBoard(resend=0.01)
    board.set(GOOD)
    async with patience(), aclosing(board.watch()) as states:
        assert [await anext(states) for _ in range(3)] == [(GOOD,)] * 3


async def test_close_ends_every_stream() -> None:
    board = HealthBoard()
    streams = [asyncio.create_task(_all(board)) for _ in range(2)]
    await asyncio.sleep(0)
    board.close()
    assert await asyncio.gather(*streams) == [1, 1]


async def _all(board: HealthBoard) -> int:
    return len([state async for state in board.watch()])


async def test_long_messages_are_cut_and_watchers_leave_nothing() -> None:
    board = HealthBoard()
    board.set(DeviceHealth("p", "d", Health.UNHEALTHY, "x" * 5000))
    service = HealthService(board)
    async with aclosing(service.watch(pb.NodeWatchResourcesRequest(), None)) as answers:
        (device,) = (await anext(answers)).devices
        assert len(device.message) == 1024
    assert board._watchers == set()
