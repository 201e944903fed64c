# SPDX-License-Identifier: Apache-2.0
"""After a restart: asking the world what is true and carrying out what recover.py decides.

Owns the facts and the acts of a recovery. It may run at any time and side by side with calls of
the kubelet: a claim that a call has changed meanwhile is left to that call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from usbdra.errors import UsbdraError
from usbdra.plugin.acts import Acts, Files
from usbdra.plugin.contracts import Claims
from usbdra.plugin.records import Records
from usbdra.plugin.telling import Telling
from usbdra.plugin.threads import in_thread
from usbdra.plugin.turns import Turns, after
from usbdra.state.claims import ClaimRecord, ClaimRef
from usbdra.state.recover import (
    Action,
    Keep,
    Lost,
    RemoveFiles,
    Rewrite,
    Store,
    World,
    recover,
)
from usbdra.types import ClaimUid, Port

log = logging.getLogger(__name__)

API_SECONDS = 5.0
"""How long a start waits for the API; without its answer nothing that runs is given back."""
RESTORE_API_SECONDS = 2.0
"""How long a lost link waits for it: what keeps the API away may be what broke the link."""


class Recovery:
    """See module. `clean_later` takes claims that could not be recovered."""

    def __init__(
        self,
        *,
        boot_id: str,
        records: Records,
        claims: Claims,
        files: Files,
        acts: Acts,
        turns: Turns,
        telling: Telling,
        release_seconds: float,
        clean_later: Callable[[ClaimUid], None],
    ) -> None:
        self._boot_id = boot_id
        self._records = records
        self._claims = claims
        self._files = files
        self._acts = acts
        self._turns = turns
        self._telling = telling
        self._release_seconds = release_seconds
        self._clean_later = clean_later

    async def run(self, ports: Callable[[], Sequence[Port]]) -> list[Lost]:
        """Recover all claims; returns the devices that are to be attached again.

        ports: reads the vhci rows; called when no other agent can change them. All facts are
        taken under the node's lock for the same reason. A claim that cannot be recovered keeps
        its record and holds up no other.
        """
        async with self._turns.node.hold():
            records = self._records.all()
            files = await in_thread(self._files.claims)
            for bad in self._records.take_set_aside():
                self._telling.set_aside(bad, files.get(ClaimUid(bad.name)))
            known = {**{uid: r for uid, r in files.items() if r is not None}, **records}
            allocated = await self.allocated(record.ref for record in known.values())
            world = World(self._boot_id, ports(), files, allocated)
            decided = groupby(recover(records, world), key=lambda action: action.uid)
            work = [self._claim(uid, records.get(uid), list(a)) for uid, a in decided]
            return [lost for found in await asyncio.gather(*work) for lost in found]

    async def allocated(
        self, refs: Iterable[ClaimRef], seconds: float = API_SECONDS
    ) -> Mapping[ClaimUid, bool] | None:
        """Which claims the API has allocated; None unless it answered for every one in time."""
        wanted = list(refs)
        try:
            async with asyncio.timeout(seconds):
                found = await asyncio.gather(*(self._is_allocated(ref) for ref in wanted))
        except (UsbdraError, TimeoutError) as error:
            log.warning("claims are not checked with the API now: %s", error or "no answer")
            return None
        return {ref.uid: there for ref, there in zip(wanted, found, strict=True)}

    async def _is_allocated(self, ref: ClaimRef) -> bool:
        claim = await self._claims.get(ref.namespace, ref.name)
        if claim is None or claim["metadata"]["uid"] != ref.uid:
            return False
        return bool((claim.get("status") or {}).get("allocation"))

    async def _claim(
        self, uid: ClaimUid, seen: ClaimRecord | None, actions: Sequence[Action]
    ) -> list[Lost]:
        lost: list[Lost] = []
        async with self._turns.claims.hold(uid):
            if self._records.get(uid) is not seen:
                return []
            try:
                for action in actions:
                    lost += await self._carry_out(action)
            except UsbdraError as error:
                log.error("claim %s cannot be recovered now: %s", uid, error)
                self._clean_later(uid)
        return lost

    async def _carry_out(self, action: Action) -> list[Lost]:
        uid = action.uid
        if isinstance(action, Store):
            await self._records.put(action.record)
            return []
        if isinstance(action, RemoveFiles):
            await in_thread(self._files.remove, uid)
            return []
        record = self._records.all()[uid]
        if isinstance(action, Rewrite):
            await in_thread(self._files.write, record)
        if isinstance(action, Rewrite | Keep):
            return await self._found(record, await self._acts.lost(record))
        if isinstance(action, Lost):
            return await self._found(record, action.keys)
        log.info("%s is given back: %s", record.ref, action.why)
        async with self._turns.in_time(record.ref, after(self._release_seconds)):
            await self._acts.give_back(record)
        self._telling.released(record)
        return []

    async def _found(self, record: ClaimRecord, lost: tuple[tuple[str, int], ...]) -> list[Lost]:
        """The rows may agree and the devices not: the attacher has the last word."""
        self._telling.healthy(record)
        if not lost:
            return []
        self._telling.lost(record, lost)
        await self._acts.out_of_reach(record, lost)
        return [Lost(record.ref.uid, lost)]
