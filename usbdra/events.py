# SPDX-License-Identifier: Apache-2.0
"""The form of an Event (events.k8s.io/v1), whoever tells it.

Owns the limits of the API and where an Event is kept. Must not decide what is told, nor send it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

MAX_NOTE = 1024
"""Letters of an Event's note (events.k8s.io/v1 validation)."""
MAX_INSTANCE = 128
CLUSTER_EVENTS = "default"
"""Where Events about objects without a namespace are (client-go does the same)."""


def event_name() -> str:
    """A name that no other Event has."""
    return f"usbdra-{uuid.uuid4().hex[:16]}"


def event_body(
    regarding: Mapping[str, Any],
    *,
    name: str,
    at: datetime,
    reporter: tuple[str, str],
    action: str,
    reason: str,
    note: str,
    warning: bool,
) -> dict[str, Any]:
    """The object to create in the namespace that its metadata names.

    regarding: the object it is about, as Events name it. reporter: (controller, instance).
    """
    controller, instance = reporter
    return {
        "metadata": {"name": name, "namespace": regarding.get("namespace") or CLUSTER_EVENTS},
        "eventTime": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": controller,
        "reportingInstance": instance[:MAX_INSTANCE],
        "action": action,
        "reason": reason,
        "note": note[:MAX_NOTE],
        "type": "Warning" if warning else "Normal",
        "regarding": dict(regarding),
    }
