# SPDX-License-Identifier: Apache-2.0
"""The text by which a trace goes on in another process: W3C Trace Context's `traceparent`. Pure.

Owns its form and nothing else of a trace. `tracestate` is not carried: it would be a text of any
kind that strangers choose.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SIZE = 55
"""Characters, all of ASCII (https://www.w3.org/TR/trace-context/#traceparent-header)."""

_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_SAMPLED = 1


class TraceParent(NamedTuple):
    """A span of another process."""

    trace_id: int
    span_id: int
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"


def parse(text: str) -> TraceParent | None:
    """The span of a well-formed text of version 00; None for everything else, as the
    recommendation asks: the receiver then begins a trace of its own."""
    match = _FORM.fullmatch(text) if len(text) == SIZE else None
    if match is None:
        return None
    trace_id, span_id, flags = (int(digits, 16) for digits in match.groups())
    if not trace_id or not span_id:
        return None
    return TraceParent(trace_id, span_id, bool(flags & _SAMPLED))


def cleaned(value: object) -> str:
    """What of a peer's word may go on: a well-formed text as we would write it, else ""."""
    found = parse(value) if isinstance(value, str) else None
    return str(found) if found is not None else ""
