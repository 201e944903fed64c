# SPDX-License-Identifier: Apache-2.0
"""One node kept prepared: modules loaded once, the label true at all times.

Owns the loop. News of modules come from the kernel's uevents, of the label from a watch of the
node's own object; a look every minute finds what no one tells of: a package that brought modules,
an event that was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from usbdra import kmod
from usbdra.discovery.uevent import UeventHub
from usbdra.errors import KernelUnsupported
from usbdra.events import event_body, event_name
from usbdra.kmod import Module
from usbdra.kube import errors
from usbdra.kube.types import EVENT, NODE, Object
from usbdra.kube.verbs import Creates, Lister, Merges
from usbdra.kube.watch import Change, Reflector
from usbdra.nodesetup.state import (
    HELPFUL,
    REQUIRED,
    Memory,
    Seen,
    Verdict,
    judge,
    label_patch,
    to_load,
)

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0


class Loader(Protocol):
    """What loads a module; `Libkmod` is one."""

    def load(self, name: str) -> None:
        """Blocks. Raises KernelUnsupported."""


class Api(Lister, Merges, Creates, Protocol):
    """The verbs of KubeClient that node preparation needs."""


class NodeSetup:
    """Run `run`; it ends only by cancellation."""

    def __init__(
        self,
        api: Api,
        loader: Loader,
        events: UeventHub,
        *,
        node: str,
        group: str,
        root: Path = Path("/"),
        on_ready: Callable[[bool], None] = lambda ready: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`on_ready` is told after each look whether the node is ready and labelled so."""
        self._api = api
        self._loader = loader
        self._events = events
        self._node = node
        self._key = f"{group}/usbip"
        self._root = root
        self._on_ready = on_ready
        self._look_seconds = look_seconds
        self._memory = Memory()
        self._told: Verdict | None = None
        self._seen = Seen()
        self._wake = asyncio.Event()
        self._object: Mapping[str, Any] | None = None

    def seen(self) -> Seen:
        """What the last look found."""
        return self._seen

    async def run(self) -> None:
        """Look, act, wait for news."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear_kernel())
            group.create_task(self._watch_node())
            while True:
                self._wake.clear()
                await self._round()
                try:
                    async with asyncio.timeout(self._look_seconds):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _round(self) -> None:
        modules = await self._load()
        verdict = judge(modules, self._memory)
        labelled = await self._label(verdict.ready)
        self._seen = Seen(tuple(modules), verdict, labelled)
        if verdict != self._told and await self._tell(verdict):
            self._told = verdict
        self._on_ready(verdict.ready and labelled)

    async def _load(self) -> Sequence[Module]:
        modules = self._look()
        for name in to_load(modules, self._memory):
            try:
                await asyncio.to_thread(self._loader.load, name)
            except KernelUnsupported as error:
                self._memory.failures[name] = str(error)
        return self._look()

    def _look(self) -> Sequence[Module]:
        modules = [kmod.look(self._root, name) for name in (*REQUIRED, *HELPFUL)]
        self._memory.learn(modules)
        return modules

    async def _label(self, ready: bool) -> bool:
        """Whether the label says what is true."""
        if self._object is None:  # the watch wakes us when it is read
            return False
        patch = label_patch(self._object["metadata"].get("labels") or {}, self._key, ready)
        if patch is None:
            return True
        try:
            self._object = await self._api.merge(NODE, self._node, patch)
        except errors.ApiError as error:
            log.warning("label %s of node %s is not written: %s", self._key, self._node, error)
            return False
        log.info(
            "node label written", extra={"node": self._node, "label": self._key, "present": ready}
        )
        return True

    async def _tell(self, verdict: Verdict) -> bool:
        """Log and Event; True when the API server has it, or there is nothing to tell there."""
        if self._object is None:
            return False
        say = log.info if verdict.ready else log.warning
        say("%s: %s", verdict.reason, verdict.message, extra={"node": self._node})
        try:
            body = self._event(verdict, self._object)
            await self._api.create(EVENT, body, body["metadata"]["namespace"])
        except errors.ApiError as error:
            log.warning("event %s is not written: %s", verdict.reason, error)
            return not isinstance(error, errors.ApiUnavailable)
        return True

    def _event(self, verdict: Verdict, node: Mapping[str, Any]) -> Object:
        uid = node["metadata"]["uid"]
        return event_body(
            {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid},
            name=event_name(),
            at=datetime.now(UTC),
            reporter=(self._key.replace("/usbip", "/node-setup"), self._node),
            action="PrepareNode",
            reason=verdict.reason,
            note=verdict.message,
            warning=not verdict.ready,
        )

    async def _hear_kernel(self) -> None:
        async with self._events.subscribe() as events:
            async for event in events:
                if event.subsystem in ("module", ""):
                    self._wake.set()
        log.warning("the kernel's events ended; modules are looked at every minute")

    async def _watch_node(self) -> None:
        reflector = Reflector(
            self._api,
            NODE,
            fields=f"metadata.name={self._node}",
            on_error=lambda error: log.warning("node %s cannot be watched: %s", self._node, error),
        )
        async for change in reflector.run():
            if isinstance(change, Change):
                self._object = change.new
                self._wake.set()
