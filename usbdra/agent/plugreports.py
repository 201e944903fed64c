# SPDX-License-Identifier: Apache-2.0
"""What a USBAttachment's status says of the plug: `status.plug`, the agent's part of it.

Owns one queue and one task. The newest word about an attachment wins; an API server that is away
is asked again with growing pauses and delays nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass
from typing import Any

from usbdra.agent.outbox import BACKOFF, keep_sending
from usbdra.hotplug.qemu import Address
from usbdra.kube import errors
from usbdra.kube.types import Kind, Object
from usbdra.kube.verbs import Applies
from usbdra.state.plugs import PlugRecord

log = logging.getLogger(__name__)

MANAGER = "usbdra-agent"
"""Of all agents: the next node's word replaces this one's."""


@dataclass(frozen=True, slots=True)
class _Word:
    record: PlugRecord
    plug: Object


class PlugReports:
    """Run `run`; everything else only queues. A word that was said last is not repeated."""

    def __init__(self, api: Applies, kind: Kind, *, backoff: tuple[float, float] = BACKOFF) -> None:
        self._api = api
        self._kind = kind
        self._backoff = backoff
        self._words: dict[str, _Word] = {}
        self._said: dict[str, Object] = {}
        self._work = asyncio.Event()

    def attached(self, record: PlugRecord, address: Address | None) -> None:
        """The machine has the device, at this address; or the container has it."""
        where = {"address": asdict(address)} if address is not None else {}
        self._say(record, {"attached": True, **where})

    def detached(self, record: PlugRecord, reason: str, message: str) -> None:
        """It has not, and why."""
        self._say(record, {"attached": False, "reason": reason, "message": message[:1024]})

    def forget(self, attachment: str) -> None:
        """The attachment is not on this node any more; if it comes back, all is said anew."""
        self._said.pop(attachment, None)

    async def run(self) -> None:
        """Tell the API server what is queued, for ever."""
        await keep_sending(self._work, self._flush, self._backoff, log, "attachment reports")

    async def _flush(self) -> None:
        while self._words:
            await self._tell(*next(iter(self._words.items())))

    def _say(self, record: PlugRecord, plug: dict[str, Any]) -> None:
        plug |= {"podUID": record.pod, "claimUID": record.claim}
        if record.container:
            plug["containerID"] = record.container
        if self._said.get(record.attachment) != plug:
            self._said[record.attachment] = plug
            self._words[record.attachment] = _Word(record, plug)
            self._work.set()

    async def _tell(self, uid: str, word: _Word) -> None:
        """The uid makes an attachment of the same name but another life a conflict."""
        body: Object = {
            "metadata": {"name": word.record.name, "uid": uid},
            "status": {"plug": word.plug},
        }
        try:
            await self._api.apply(
                self._kind,
                body,
                manager=MANAGER,
                namespace=word.record.namespace,
                subresource="status",
            )
        except errors.ApiUnavailable:
            raise
        except errors.ApiNotFound:
            log.debug("report dropped: the attachment is gone")
        except errors.ApiError as error:
            log.warning("report dropped: %s", error)
        if self._words.get(uid) is word:  # nothing newer came while this was under way
            del self._words[uid]
