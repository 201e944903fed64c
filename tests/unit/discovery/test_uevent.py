# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.uevents import FakeUevents
from tests.waiting import patience
from usbdra.discovery import uevent
from usbdra.discovery.uevent import RESCAN, NetlinkSource, UeventHub
from usbdra.types import Uevent

EVENTS = [Uevent("add", f"/devices/x/{i}", "usb", "usb_device") for i in range(6)]


@pytest.fixture
async def source() -> AsyncIterator[FakeUevents]:
    source = FakeUevents()
    yield source
    source.close()


async def test_every_subscriber_gets_every_event(source: FakeUevents) -> None:
    hub = UeventHub(source)
    hub.start()
    hub.start()
    async with hub.subscribe() as one, hub.subscribe() as two:
        source.send(*EVENTS)
        assert [await anext(one) for _ in EVENTS] == EVENTS
        assert await two.batch() == EVENTS
    hub.close()
    hub.close()
    assert source.closed


async def test_a_closed_hub_ends_iteration_after_what_is_queued(source: FakeUevents) -> None:
    hub = UeventHub(source)
    hub.start()
    async with hub.subscribe() as events:
        source.send(EVENTS[0])
        assert await events.wait()
        hub.close()
        assert [event async for event in events] == EVENTS[:1]
        assert await events.batch() == []


async def test_a_slow_subscriber_is_told_to_rescan_and_others_are_not(source: FakeUevents) -> None:
    hub = UeventHub(source, limit=3)
    hub.start()
    async with hub.subscribe() as slow, hub.subscribe() as quick:
        source.send(*EVENTS[:2])
        assert await quick.batch() == EVENTS[:2]
        source.send(*EVENTS[2:4])
        assert await quick.batch() == EVENTS[2:4]
        assert await slow.batch() == [RESCAN]
        source.send(EVENTS[5])
        assert await slow.batch() == [EVENTS[5]]
    hub.close()


async def test_nobody_is_told_after_leaving(source: FakeUevents) -> None:
    hub = UeventHub(source)
    hub.start()
    async with hub.subscribe() as left:
        pass
    async with hub.subscribe() as here:
        source.send(EVENTS[0])
        assert await anext(here) == EVENTS[0]
    left.end()
    assert await left.batch() == []
    hub.close()


async def test_a_dead_source_ends_all_subscriptions(
    source: FakeUevents, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def drain() -> list[Uevent]:
        raise OSError(errno.EBADF, "gone")

    monkeypatch.setattr(source, "drain", drain)
    hub = UeventHub(source)
    hub.start()
    async with hub.subscribe() as events:
        source.send(EVENTS[0])
        assert await events.batch() == []
    assert "uevents end here" in caplog.text


class FakeDevice:
    action = "add"
    device_path = "/devices/x/1-4"
    subsystem = "usb"
    device_type = "usb_device"
    properties = {"DEVNAME": "/dev/bus/usb/001/004", "BUSNUM": "001"}  # noqa: RUF012


class FakeMonitor:
    """Gives what the list holds; an int stands for a poll that fails, as pyudev's does."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script

    def poll(self, timeout: float) -> FakeDevice | None:
        assert timeout == 0
        item = self.script.pop(0) if self.script else None
        if item == "error":
            raise OSError("Error while polling fd: 4")
        return item


class FakeSocket:
    def __init__(self, error: int) -> None:
        self.error = error

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return self.error


def netlink(script: list[Any], error: int = 0) -> NetlinkSource:
    source = NetlinkSource.__new__(NetlinkSource)
    source._monitor = FakeMonitor(script)
    source._socket = FakeSocket(error)  # type: ignore[assignment]
    return source


def test_netlink_events_are_typed() -> None:
    assert netlink([FakeDevice()]).drain() == [
        Uevent(
            "add",
            "/devices/x/1-4",
            "usb",
            "usb_device",
            (("DEVNAME", "/dev/bus/usb/001/004"), ("BUSNUM", "001")),
        )
    ]


def test_an_overrun_becomes_one_rescan() -> None:
    script = [FakeDevice(), "error", FakeDevice()]
    events = netlink(script, errno.ENOBUFS).drain()
    assert [e.action for e in events] == ["rescan", "add"]


def test_another_socket_error_is_raised() -> None:
    with pytest.raises(OSError, match="uevent socket") as caught:
        netlink(["error"], errno.EBADF).drain()
    assert caught.value.errno == errno.EBADF


def test_a_storm_cannot_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uevent, "MAX_DRAIN", 4)
    assert len(netlink([FakeDevice()] * 10).drain()) == 4


async def test_the_real_monitor_opens_and_closes() -> None:
    source = NetlinkSource()
    hub = UeventHub(source)
    hub.start()
    async with hub.subscribe() as events:
        hub.close()
        async with patience():
            await events.batch()
