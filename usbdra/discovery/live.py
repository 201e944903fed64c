# SPDX-License-Identifier: Apache-2.0
"""Drives the inventory on an event loop: feeds it events, tells watchers, keeps the deadlines.

Owns timing: when a pending device is read a last time, how a burst of changes becomes few
notices, what happens when the kernel's events do not reach us. Must not read devices itself.
While events arrive, no timer runs on an idle node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple

from usbdra.discovery.hostwatch import HostWatch
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.snapshot import Snapshot
from usbdra.discovery.uevent import Subscription, UeventHub

_log = logging.getLogger(__name__)


class Change(NamedTuple):
    """What a watcher saw last, and what is there now."""

    old: Snapshot
    new: Snapshot


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Events of a known device are followed by a read after `quiet`, and a change is told
    after `quiet`; while changes go on, the pause between notices
    doubles from `pause` to `longest_pause`, and a calm of `longest_pause` resets it."""

    quiet: float = 0.02
    pause: float = 0.1
    longest_pause: float = 2.0
    retry_after: float = 1.0
    test_wait: float = 2.0
    rescan_every: float = 30.0


class LiveInventory:
    """An inventory that follows its node. `run()` is the one task; all else is on its loop."""

    def __init__(
        self,
        inventory: Inventory,
        hub: UeventHub,
        *,
        poke: Callable[[], None] | None = None,
        timing: Timing | None = None,
    ) -> None:
        """`poke` makes the kernel send one uevent (`tree.poke`); without it the self-test is
        left out. The hub must be started, and is closed by its owner."""
        self._inventory = inventory
        self._hub = hub
        self._poke = poke
        self._timing = timing or Timing()
        self._notifier = _Notifier(inventory, self._timing)
        self._retry: asyncio.TimerHandle | None = None
        self._refresh: asyncio.TimerHandle | None = None
        self.events_missing = False
        """True when the self-test saw no event: the tree is then read again at intervals."""

    @property
    def inventory(self) -> Inventory:
        """For its owner's `hold` and `ambiguous`; call `changed` after."""
        return self._inventory

    @property
    def snapshot(self) -> Snapshot:
        """The devices now, even before watchers are told."""
        return self._inventory.snapshot

    def changed(self) -> None:
        """Tell watchers of what the caller did to the inventory, if it made a difference."""
        self._notifier.changed()
        if self._inventory.pending and self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(self._timing.retry_after, self._last_try)

    def watch(self) -> AsyncIterator[Change]:
        """Changes from now on; ends with `run()`. A slow watcher misses steps, never the end."""
        return self._notifier.changes(self._notifier.told)

    async def run(self) -> None:
        """Follow events until cancelled, or until the hub is closed."""
        host = HostWatch(self._inventory.root, self._host_changed)
        try:
            async with self._hub.subscribe() as events:
                # Subscribed first: what happens during the look is in the queue after it.
                self._inventory.resync()
                self.changed()
                await self._self_test(events)
                await self._follow(events)
        finally:
            host.close()
            for timer in (self._retry, self._refresh):
                if timer is not None:
                    timer.cancel()
            self._notifier.close()

    async def _follow(self, events: Subscription) -> None:
        while True:
            try:
                limit = self._timing.rescan_every if self.events_missing else None
                async with asyncio.timeout(limit):
                    batch = await events.batch()
            except TimeoutError:
                self._inventory.resync()
            else:
                if not batch:
                    return
                if self.events_missing:
                    self.events_missing = False
                    _log.warning("kernel events arrive again")
                self._inventory.note(batch)
                if self._inventory.stale and self._refresh is None:
                    loop = asyncio.get_running_loop()
                    self._refresh = loop.call_later(self._timing.quiet, self._read_stale)
            self.changed()

    async def _self_test(self, events: Subscription) -> None:
        """Have the kernel send an event and see whether it gets here (field report R39)."""
        if self._poke is None:
            return
        try:
            self._poke()
        except OSError as error:
            _log.info("no uevent self-test: %s", error)
            return
        try:
            async with asyncio.timeout(self._timing.test_wait):
                await events.wait()
        except TimeoutError:
            self.events_missing = True
            _log.warning(
                "no kernel events reach this process; is it in the host's network namespace? "
                "looking at all devices every %g s",
                self._timing.rescan_every,
            )

    def _read_stale(self) -> None:
        self._refresh = None
        self._inventory.refresh()
        self.changed()

    def _host_changed(self) -> None:
        self._inventory.refresh_holders()
        self.changed()

    def _last_try(self) -> None:
        self._retry = None
        self._inventory.retry()
        self.changed()


class _Notifier:
    """Wakes watchers: soon after a change, ever more rarely while changes do not end."""

    def __init__(self, inventory: Inventory, timing: Timing) -> None:
        self._inventory = inventory
        self._timing = timing
        self.told = inventory.snapshot
        self._told_at = float("-inf")
        self._pause = timing.pause
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._closed = False

    def changed(self) -> None:
        if self._timer is not None or self._inventory.snapshot is self.told:
            return
        loop = asyncio.get_running_loop()
        calm = loop.time() - self._told_at
        if calm > self._timing.longest_pause:
            self._pause = self._timing.pause
        delay = max(self._timing.quiet, self._pause - calm)
        self._timer = loop.call_later(delay, self._tell)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._closed = True
        self._news.set()

    async def changes(self, seen: Snapshot) -> AsyncIterator[Change]:
        while True:
            if self.told is not seen:
                old, seen = seen, self.told
                yield Change(old, seen)
            elif self._closed:
                return
            else:
                await self._news.wait()

    def _tell(self) -> None:
        self._timer = None
        self._inventory.refresh()  # a new device's interfaces follow it at once: tell both together
        new = self._inventory.snapshot
        # Equal to what was told is news, too: a device that came and went meanwhile may have been
        # seen by who looked at `snapshot` for another reason.
        if new is self.told:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._told_at <= self._timing.longest_pause:
            self._pause = min(self._pause * 2, self._timing.longest_pause)
        self.told = new
        self._told_at = loop.time()
        self._news.set()
        self._news = asyncio.Event()
