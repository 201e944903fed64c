# SPDX-License-Identifier: Apache-2.0
"""Follows the cluster while somebody looks at the page, and only then.

Owns the watches and the one board that all viewers share. Each controller serves the page, leader
or not, so these watches are its own; they cost nothing while nobody looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from usbdra.controller.mirror import Mirror
from usbdra.controller.web import rows
from usbdra.controller.web.board import Board
from usbdra.kube.custom import Contract
from usbdra.kube.types import NAMESPACE, RESOURCE_CLAIM, RESOURCE_SLICE, Keep, Kind, Object
from usbdra.kube.verbs import Lister
from usbdra.kube.watch import Key

log = logging.getLogger(__name__)

LINGER_SECONDS = 60.0
"""How long the watches outlive the last viewer: reloading a page is no new start."""


def kinds(contract: Contract) -> dict[str, Kind]:
    """The kind that each section shows."""
    return {
        rows.DEVICES: contract.node_device,
        rows.SLICES: RESOURCE_SLICE,
        rows.CLAIMS: RESOURCE_CLAIM,
        rows.NAMESPACES: NAMESPACE,
    }


class Watched:
    """One spell of watching: a board, whether it is filled, and news of it."""

    def __init__(self, api: Lister, contract: Contract) -> None:
        self.board = Board()
        self._news = asyncio.Event()
        fields = {rows.SLICES: f"spec.driver={contract.driver}"}
        readers = rows.readers(contract.driver)
        self._mirrors = [
            Mirror(
                api, kind, _trim(readers[section]), partial(self._put, section),
                fields=fields.get(section, ""),
            )
            for section, kind in kinds(contract).items()
        ]  # fmt: skip
        self._task = asyncio.create_task(self._run())

    @property
    def ended(self) -> bool:
        """Whether it is over, by `stop` or by a mistake."""
        return self._task.done()

    async def filled(self) -> None:
        """Wait until every kind was seen once, or the end."""
        seen = asyncio.gather(*(mirror.synced.wait() for mirror in self._mirrors))
        try:
            await asyncio.wait((seen, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            seen.cancel()

    async def changed(self) -> None:
        """Wait for the next change of the board, or the end."""
        await self._news.wait()

    async def stop(self) -> None:
        """End all watches."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._mirrors:
                    group.create_task(mirror.run())
        except Exception:  # the page starts anew; the controller's work goes on
            log.exception("the page's watches failed")
        finally:
            self._tell()

    def _put(self, section: str, key: Key, item: Object | None) -> None:
        name = f"{key[0]}/{key[1]}" if key[0] else key[1]
        if self.board.put(section, name, item["row"] if item else None):
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Watching:
    """Hands out the spell that runs, starts one for the first viewer, ends it after the last."""

    def __init__(
        self, api: Lister, contract: Contract, linger_seconds: float = LINGER_SECONDS
    ) -> None:
        self.viewers = 0
        self._api = api
        self._contract = contract
        self._linger_seconds = linger_seconds
        self._watched: Watched | None = None
        self._leaving: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def viewer(self) -> AsyncIterator[Watched]:
        """The cluster as it is watched, for as long as the block runs."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if self._watched is None or self._watched.ended:
            self._watched = Watched(self._api, self._contract)
        self.viewers += 1
        try:
            yield self._watched
        finally:
            self.viewers -= 1
            if self.viewers == 0:
                self._leaving = asyncio.create_task(self._linger())

    async def stop(self) -> None:
        """End everything."""
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)
        if self._watched is not None:
            await self._watched.stop()

    async def _linger(self) -> None:
        await asyncio.sleep(self._linger_seconds)
        watched, self._watched = self._watched, None
        if watched is not None:
            await watched.stop()


def _trim(read: rows.Reader) -> Keep:
    """What a mirror keeps of an object: its identity, and its row."""

    def trim(item: Object) -> Object:
        meta = item["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion")
        return {"metadata": {key: meta[key] for key in kept if key in meta}, "row": read(item)}

    return trim
