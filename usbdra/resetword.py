# SPDX-License-Identifier: Apache-2.0
"""The word by which a reset is asked for, and how the answer is known. Pure.

Owns the annotation's value: a time in RFC 3339, which is what tells one request from another,
and `,force` after it if the device is to be reset although it is in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from usbdra.errors import ConfigError, shown
from usbdra.events import MAX_NOTE

ANNOTATION = "reset"
"""Below the API group, on a NodeUSBDevice."""
ACTION = "Reset"
"""`action` of the Event that answers."""
RESET = "Reset"
"""`reason` of the answer that is no failure."""
FRESH = timedelta(minutes=10)
"""An older request is not carried out: its device, or its node, was away, and comes back in use."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a reset. `token` tells it from every other one."""

    token: str
    at: datetime
    force: bool = False

    @property
    def word(self) -> str:
        """The annotation's value."""
        return f"{self.token},force" if self.force else self.token

    def fresh(self, now: datetime) -> bool:
        """Whether it is to be carried out still; clocks of nodes may differ by that much too."""
        return abs(now - self.at) <= FRESH

    def note(self, text: str) -> str:
        """The answer's text, in the length that an Event takes."""
        ending = f" [{self.token}]"
        return text[: MAX_NOTE - len(ending)] + ending

    def answered_by(self, note: str) -> bool:
        """Whether an Event's note answers this request."""
        return note.endswith(f"[{self.token}]")


def make(now: datetime, force: bool) -> Request:
    """A request of this moment, which has a time zone."""
    return Request(now.isoformat(timespec="microseconds").replace("+00:00", "Z"), now, force)


def read(word: str) -> Request:
    """The request that an annotation's value stands for. Raises ConfigError."""
    token, comma, force = word.partition(",")
    try:
        at = datetime.fromisoformat(token)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or force not in ("", "force") or bool(comma) != bool(force):
        raise ConfigError(
            f"{shown(word)} is no request for a reset: it is a time in RFC 3339, as "
            "2026-01-31T12:00:00Z, and ,force after it if need be"
        )
    return Request(token, at, bool(force))
