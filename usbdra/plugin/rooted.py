# SPDX-License-Identifier: Apache-2.0
"""The first span of what is done for one claim: a trace of its own for each call.

Owns its name and what it says of the claim. Must not decide anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from usbdra.state.claims import ClaimRecord, ClaimRef
from usbdra.tracing.spans import Kind, Tracer

MAX_DEVICES = 4
"""Devices named in the span of their claim; each has a span of its own where it is taken."""


class _Traced(Protocol):
    tracer: Tracer


S = TypeVar("S", bound=_Traced)
R = TypeVar("R", bound=ClaimRecord | None)
Call = Callable[[S, ClaimRef], Coroutine[Any, Any, R]]


def rooted(name: str, kind: Kind = Kind.INTERNAL) -> Callable[[Call[S, R]], Call[S, R]]:
    """For a method with one claim: a new trace by the object's `tracer` for each call."""

    def decorate(work: Call[S, R]) -> Call[S, R]:
        @functools.wraps(work)
        async def wrapped(self: S, ref: ClaimRef) -> R:
            facts = {"claim": f"{ref.namespace}/{ref.name}", "claim_uid": ref.uid}
            with self.tracer.entry(name, kind, **facts) as span:
                record = await work(self, ref)
                if record is not None:
                    span.set(**_devices(record))
                span.set(result="ok")
                return record

        return wrapped

    return decorate


def _devices(record: ClaimRecord) -> dict[str, str]:
    named = record.devices[:MAX_DEVICES]
    return {
        "device": ", ".join(device.name for device in named),
        "node": ", ".join(dict.fromkeys(device.node for device in named)),
    }
