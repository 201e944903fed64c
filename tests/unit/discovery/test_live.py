# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.fakes.sysfs import FakeDevice, Interface, SysTree
from tests.fakes.uevents import FakeUevents, device_event
from tests.waiting import patience, until
from usbdra.discovery import live
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.live import Change, LiveInventory, Timing
from usbdra.discovery.uevent import UeventHub
from usbdra.types import DeviceName

QUICK = Timing(
    quiet=0.001,
    pause=0.005,
    longest_pause=0.2,
    retry_after=0.02,
    test_wait=0.02,
    rescan_every=0.01,
)


class Node:
    """A followed node: its tree, its events, its live inventory."""

    def __init__(
        self, tree: SysTree, poke: Callable[[FakeUevents], None] | None, timing: Timing
    ) -> None:
        self.source = FakeUevents()
        self.hub = UeventHub(self.source)
        self.inventory = Inventory(tree.root, node="a")
        self.live = LiveInventory(
            self.inventory,
            self.hub,
            poke=None if poke is None else lambda: poke(self.source),
            timing=timing,
        )


@asynccontextmanager
async def following(
    tree: SysTree,
    poke: Callable[[FakeUevents], None] | None = None,
    timing: Timing | None = None,
) -> AsyncIterator[Node]:
    node = Node(tree, poke, timing or QUICK)
    node.hub.start()
    task = asyncio.create_task(node.live.run())
    await asyncio.sleep(0)
    try:
        yield node
    finally:
        node.hub.close()
        await task


async def soon(awaitable: Awaitable[Change]) -> Change:
    async with patience():
        return await awaitable


def busids(change: Change) -> tuple[list[str], list[str]]:
    return (
        [o.device.busid for o in change.old.offers],
        [o.device.busid for o in change.new.offers],
    )


async def test_watchers_see_the_first_look_and_every_plug(tree: SysTree, hs: FakeDevice) -> None:
    hs.plug(1, serial=b"ONE")
    async with following(tree) as node:
        changes = node.live.watch()
        assert busids(await soon(anext(changes))) == ([], ["1-1"])
        node.source.device("add", hs.plug(2, serial=b"TWO"))
        assert busids(await soon(anext(changes))) == (["1-1"], ["1-1", "1-2"])


async def test_a_watcher_that_comes_later_starts_at_the_present(
    tree: SysTree, hs: FakeDevice
) -> None:
    async with following(tree) as node:
        first = node.live.watch()
        await soon(anext(first))
        node.source.device("add", hs.plug(1))
        await soon(anext(first))
        second = node.live.watch()
        node.source.device("add", hs.plug(2))
        assert busids(await soon(anext(second))) == (["1-1"], ["1-1", "1-2"])


async def test_watching_ends_with_the_run(tree: SysTree, hs: FakeDevice) -> None:
    async with following(tree) as node:
        changes = node.live.watch()
        await soon(anext(changes))
    assert [change async for change in changes] == []


async def test_r19_a_pending_device_is_read_once_more_without_an_event(
    tree: SysTree, hs: FakeDevice
) -> None:
    async with following(tree) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        late = hs.plug(4, serial=b"4C5300")
        late.remove("serial")
        node.source.device("add", late)
        async with patience():
            while not node.live.inventory.pending:
                await asyncio.sleep(0)
        # No await from here on: the last try comes when its time is over, however late we are.
        assert node.live.snapshot.offers == ()
        late.write("serial", b"4C5300\n")
        change = await soon(anext(changes))
        assert [o.name for o in change.new.offers] == ["usb-0781-5581-4c5300"]


async def test_r38_a_storm_of_changes_becomes_few_notices(tree: SysTree, hs: FakeDevice) -> None:
    # A calm of the longest pause resets the pauses: long enough that a busy machine is none.
    timing = replace(QUICK, longest_pause=1.6)
    async with following(tree, timing=timing) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        seen: list[Change] = []

        async def collect() -> None:
            async for change in changes:
                seen.append(change)

        collector = asyncio.create_task(collect())
        for _ in range(20):
            flapping = hs.plug(3)
            node.source.device("add", flapping)
            await asyncio.sleep(0.002)
            flapping.unplug()
            node.source.device("remove", flapping)
            await asyncio.sleep(0.002)
        stays = hs.plug(5)
        node.source.device("add", stays)
        await until(lambda: seen and busids(seen[-1])[1] == ["1-5"])
    await collector
    # 41 changes; pauses of 5, 10, 20 ... 1280 ms, then the longest: ten notices take 4 s.
    assert len(seen) <= 10


async def test_lost_events_lead_to_a_look(tree: SysTree, hs: FakeDevice) -> None:
    async with following(tree) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        hs.plug(1)
        node.source.overrun()
        assert busids(await soon(anext(changes))) == ([], ["1-1"])


async def test_r39_silence_is_noticed_and_the_tree_is_read_at_intervals(
    tree: SysTree, hs: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tree, poke=lambda source: None) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        await until(lambda: node.live.events_missing)
        assert "no kernel events reach this process" in caplog.text
        hs.plug(1)
        assert busids(await soon(anext(changes))) == ([], ["1-1"])
        node.source.device("add", hs.plug(2))
        assert busids(await soon(anext(changes))) == (["1-1"], ["1-1", "1-2"])
        assert not node.live.events_missing


async def test_r39_an_event_that_arrives_proves_that_events_arrive(
    tree: SysTree, hs: FakeDevice
) -> None:
    async with following(tree, poke=lambda source: source.device("change", hs)) as node:
        await asyncio.sleep(0.03)
        assert not node.live.events_missing


async def test_self_test_without_the_right_to_write(tree: SysTree, hs: FakeDevice) -> None:
    def poke(source: FakeUevents) -> None:
        raise PermissionError(errno.EACCES, "no")

    async with following(tree, poke=poke) as node:
        await asyncio.sleep(0.03)
        assert not node.live.events_missing


async def test_what_came_and_went_between_two_notices_is_told(
    tree: SysTree, hs: FakeDevice
) -> None:
    """Who published the snapshot meanwhile would offer a device that is gone, for good."""
    async with following(tree) as node:
        changes = node.live.watch()
        first = await soon(anext(changes))
        stick = hs.plug(1, serial=b"A1")
        node.inventory.apply([device_event("add", stick)])
        node.live.changed()
        assert len(node.live.snapshot.offers) == 1
        stick.unplug()
        node.inventory.apply([device_event("remove", stick)])
        node.live.changed()
        again = await soon(anext(changes))
        assert (again.old, again.new.offers) == (first.new, ())


async def test_a_new_device_is_told_together_with_what_follows_it_at_once(
    tree: SysTree, hs: FakeDevice
) -> None:
    """Told apart, the second half would wait for the longer pause between notices."""
    async with following(tree, timing=replace(QUICK, quiet=0.25)) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        disk = hs.plug(1, serial=b"A1", interfaces=(Interface(8, 6, 80),))
        node.source.device("add", disk)
        while not node.live.snapshot.offers:
            await asyncio.sleep(0)
        assert not node.live.snapshot.offers[0].device.interfaces[0].driver
        disk.bind_interface(0, "usb-storage")
        node.source.interface("bind", disk)
        (offer,) = (await soon(anext(changes))).new.offers
        assert offer.device.interfaces[0].driver == "usb-storage"


async def test_r13_a_disk_mounted_later_is_offered_no_more(
    tree: SysTree, hs: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount makes no uevent."""
    watches: list[FakeWatch] = []

    class FakeWatch:
        def __init__(self, root: str, changed: Callable[[], None]) -> None:
            assert root == str(tree.root)
            self.changed = changed
            self.closed = False
            watches.append(self)

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(live, "HostWatch", FakeWatch)
    disk = hs.plug(1)
    disk.child("block", "sda", ("sda1",))
    async with following(tree) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        tree.mount("/", "8:1", "/dev/sda1")
        watches[0].changed()
        assert not (await soon(anext(changes))).new.offers[0].usable
    assert [watch.closed for watch in watches] == [True]


async def test_changes_made_by_the_owner_are_told(tree: SysTree, hs: FakeDevice) -> None:
    disk = hs.plug(1, serial=b"A1")
    async with following(tree) as node:
        changes = node.live.watch()
        await soon(anext(changes))
        node.live.inventory.hold({f"/sys{disk.devpath}": DeviceName("usb-1a6e-089a-x")})
        node.live.changed()
        (offer,) = (await soon(anext(changes))).new.offers
        assert (offer.usable, offer.reason) == (
            False,
            "identity changed: this port is in use as usb-1a6e-089a-x",
        )
