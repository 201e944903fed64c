# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

from tests.fakes.uevents import FakeUevents
from usbdra.discovery.uevent import UeventHub
from usbdra.types import Uevent
from usbdra.vhci.waiting import EventSource, Waiter, below

DEVICE = "/devices/platform/vhci_hcd.0/usb5/5-1"


def event(devpath: str) -> Uevent:
    return Uevent("add", devpath, "usb", "usb_device")


class Counter:
    """A check that is true from the n-th look on."""

    def __init__(self, when: int) -> None:
        self.looks = 0
        self.when = when

    def __call__(self) -> int | None:
        self.looks += 1
        return self.looks if self.looks >= self.when else None


async def opened() -> tuple[FakeUevents, UeventHub]:
    source = FakeUevents()
    hub = UeventHub(source)
    hub.start()
    return source, hub


def test_the_hub_of_uevents_is_an_event_source() -> None:
    async def check(hub: EventSource) -> None:
        async with Waiter(hub):
            pass

    async def run() -> None:
        _, hub = await opened()
        await check(hub)
        hub.close()

    asyncio.run(run())


async def test_looks_only_at_once_at_events_that_concern_and_at_the_end() -> None:
    source, hub = await opened()
    async with Waiter(hub) as waiter:
        look = Counter(100)
        source.send(event("/devices/other"), event(DEVICE), event(f"{DEVICE}0"))
        assert await waiter.until(look, below(DEVICE), timeout=0.05) is None
        assert look.looks == 3
    hub.close()


async def test_true_already_needs_no_event() -> None:
    _, hub = await opened()
    async with Waiter(hub) as waiter:
        assert await waiter.until(Counter(1), below(DEVICE), timeout=0) == 1
    hub.close()


async def test_no_event_is_dropped_between_two_waits() -> None:
    source, hub = await opened()
    async with Waiter(hub) as waiter:
        assert await waiter.until(Counter(9), below(DEVICE), timeout=0.01) is None
        source.send(event(DEVICE))
        await asyncio.sleep(0.01)
        assert await waiter.until(Counter(2), below(DEVICE), timeout=2) == 2
    hub.close()


async def test_stop_ends_the_wait_at_once() -> None:
    _, hub = await opened()
    stop = asyncio.get_running_loop().create_future()
    async with Waiter(hub) as waiter:
        asyncio.get_running_loop().call_soon(stop.set_result, None)
        async with asyncio.timeout(1):
            assert await waiter.until(Counter(9), below(""), timeout=30, stop=stop) is None
    hub.close()


async def test_rereads_without_events_where_asked() -> None:
    _, hub = await opened()
    async with Waiter(hub) as waiter:
        assert await waiter.until(Counter(4), below(DEVICE), timeout=2, reread=True) == 4
    hub.close()


async def test_when_events_end_it_looks_by_itself_and_does_not_spin() -> None:
    _, hub = await opened()
    async with Waiter(hub) as waiter:
        hub.close()
        look = Counter(1000)
        assert await waiter.until(look, below(DEVICE), timeout=0.1) is None
        assert 4 <= look.looks <= 12


async def test_a_burst_is_answered_by_one_look_and_every_event_is_shown() -> None:
    source, hub = await opened()
    seen: list[str] = []

    def concerns(one: Uevent) -> bool:
        seen.append(one.devpath)
        return one.devpath.startswith(DEVICE)

    async with Waiter(hub) as waiter:
        burst = [event(f"{DEVICE}/{number}") for number in range(50)]
        source.send(*burst)
        look = Counter(2)
        assert await waiter.until(look, concerns, timeout=2) == 2
        assert seen == [one.devpath for one in burst]
    hub.close()


async def test_what_bound_during_an_earlier_wait_is_known_later() -> None:
    source, hub = await opened()
    interface = f"{DEVICE}/5-1:1.0"
    async with Waiter(hub) as waiter:
        source.send(event(DEVICE), Uevent("bind", interface, "usb", "usb_interface"))
        assert not waiter.is_bound(interface)
        await waiter.until(Counter(2), lambda one: one.devpath == DEVICE, timeout=2)
        assert waiter.is_bound(interface)
        source.send(Uevent("unbind", interface, "usb", "usb_interface"))
        await waiter.until(Counter(2), below(DEVICE), timeout=2)
        assert not waiter.is_bound(interface)
        source.overrun()
        await waiter.until(Counter(2), below(DEVICE), timeout=2)
        assert waiter.is_bound(interface)
    hub.close()
