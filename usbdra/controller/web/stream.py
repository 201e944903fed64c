# SPDX-License-Identifier: Apache-2.0
"""Live rows for one viewer: server-sent events over one answer that stays open.

Owns their pace and their end. A browser's EventSource cannot send a token in a header, and a token
in a URL ends up in logs, so the page reads this answer with fetch(); the form is still that of
events. Each answer ends after some minutes: the next one asks again who the viewer is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from usbdra.controller.web import files, rows
from usbdra.controller.web.board import Behind, Changes
from usbdra.controller.web.gate import Gate, Right, User
from usbdra.controller.web.watching import Watched, Watching, kinds
from usbdra.kube.custom import Contract

MAX_VIEWERS = 32
SECONDS = 300.0
"""How long one answer goes on: a right that was taken away is felt by then."""
QUIET_SECONDS = 20.0
"""After so long without news there is a line without meaning: dead connections are noticed."""
PACE_SECONDS = 0.5
"""Between two events: changes in between are told together, and once."""
FILL_SECONDS = 30.0
WRITE_SECONDS = 30.0
ROWS = 500
"""Rows of one event at most."""


class Streams:
    """See the module."""

    def __init__(self, gate: Gate, watching: Watching, contract: Contract) -> None:
        self._gate = gate
        self._watching = watching
        self._rights = {section: Right("list", kind) for section, kind in kinds(contract).items()}
        self._rights["assign"] = Right("patch", contract.node_device)

    async def serve(self, request: web.Request, user: User) -> web.StreamResponse:
        """Tell the viewer all they may see, then what changes. Raises HTTPException, ApiError."""
        if self._watching.viewers >= MAX_VIEWERS:
            raise web.HTTPServiceUnavailable(reason="too many viewers")
        refused = await self._refused(user)
        if refused[rows.DEVICES]:
            raise web.HTTPForbidden(reason=f"{user.name} may not {self._rights[rows.DEVICES]}")
        async with self._watching.viewer() as watched:
            try:
                async with asyncio.timeout(FILL_SECONDS):
                    await watched.filled()
            except TimeoutError:
                raise web.HTTPServiceUnavailable(reason="the cluster is not known yet") from None
            if watched.ended:
                raise web.HTTPServiceUnavailable(reason="the cluster cannot be watched")
            response = web.StreamResponse(headers={**files.HEADERS, "Cache-Control": "no-store"})
            response.content_type = "text/event-stream"
            await response.prepare(request)
            may = {name: why is None for name, why in refused.items()}
            try:
                await _write(response, "hello", {"user": user.name, "may": may})
                await _follow(response, watched, [name for name, yes in may.items() if yes])
            except (ConnectionError, TimeoutError, Behind):
                pass  # gone, or too slow: the page comes again and is told all
        return response

    async def _refused(self, user: User) -> dict[str, str | None]:
        names = list(self._rights)
        answers = (self._gate.may(user, self._rights[name]) for name in names)
        return dict(zip(names, await asyncio.gather(*answers), strict=True))


async def _follow(response: web.StreamResponse, watched: Watched, sections: list[str]) -> None:
    """Write changes as they come. Raises ConnectionError, TimeoutError, Behind."""
    loop = asyncio.get_running_loop()
    end, place, first = loop.time() + SECONDS, 0, True
    while loop.time() < end and not watched.ended:
        place, found = watched.board.since(place, sections)
        for part in parts(found):
            await _write(response, "rows", part)
        if first:
            await _write(response, "all", {})
        if first or found:
            first = False
            await asyncio.sleep(PACE_SECONDS)
            continue
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await watched.changed()  # begins to wait before anything else can run
        except TimeoutError:
            await _send(response, b":\n\n")


def parts(changes: Changes) -> Iterator[Changes]:
    """The same changes in pieces of at most ROWS rows, in their order."""
    piece: Changes = {}
    count = 0
    for section, found in changes.items():
        for key, row in found.items():
            piece.setdefault(section, {})[key] = row
            count += 1
            if count == ROWS:
                yield piece
                piece, count = {}, 0
    if piece:
        yield piece


async def _write(response: web.StreamResponse, event: str, data: Any) -> None:
    text = json.dumps(data, separators=(",", ":"))
    await _send(response, f"event: {event}\ndata: {text}\n\n".encode())


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)
