# SPDX-License-Identifier: Apache-2.0
"""Which changes of conditions are told as Events, and how. Pure.

Owns the choice: what a person would want to know afterwards, each thing once. The way of an
assignment is told at the NodeUSBDevice, to the administrator; state and use of the device at the
USBDevice, to its users. The first state of an object is no news.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from usbdra.controller.acts import Object, What
from usbdra.events import event_body

_TOLD = {What.NODE_DEVICE: ("Assigned",), What.DEVICE: ("Ready", "Attached")}
_WARNINGS = frozenset({"NotReady", "NotFound", "LinkLost", "NoFreeUSBIPPort"})


@dataclass(frozen=True, slots=True)
class News:
    """One Event to be."""

    about: Object
    """The object, as far as Events name it: apiVersion, kind, name, namespace, uid."""
    reason: str
    note: str

    @property
    def warning(self) -> bool:
        """Something is wrong."""
        return self.reason in _WARNINGS


def changes(
    what: What, about: Object, stored: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]]
) -> tuple[News, ...]:
    """News of one object whose status was written.

    stored: its status as it was; wanted: the conditions that are there now.
    """
    before = {c["type"]: c["reason"] for c in stored.get("conditions") or ()}
    return tuple(
        News(about, condition["reason"], condition["message"])
        for condition in wanted
        if condition["type"] in _TOLD.get(what, ())
        and before.get(condition["type"], condition["reason"]) != condition["reason"]
    )


def event(news: News, name: str, now: datetime, reporter: str, instance: str) -> Object:
    """The Event (events.k8s.io/v1)."""
    return event_body(
        news.about,
        name=name,
        at=now,
        reporter=(reporter, instance),
        action="Reconcile",
        reason=news.reason,
        note=news.note,
        warning=news.warning,
    )
