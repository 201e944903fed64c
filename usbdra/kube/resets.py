# SPDX-License-Identifier: Apache-2.0
"""A reset that is asked for by an annotation of a NodeUSBDevice: read, and answered by an Event.

For agents, and for the controller on behalf of hosts outside the cluster. Who may ask is who may
change the object: the API server's matter. What a request's word is, is resetword.py's.
"""

from __future__ import annotations

import logging
from datetime import datetime

from usbdra import resetword
from usbdra.errors import ConfigError
from usbdra.events import event_body, event_name
from usbdra.kube.custom import Contract
from usbdra.kube.errors import ApiError
from usbdra.kube.types import EVENT, Object
from usbdra.kube.verbs import Creates
from usbdra.resetword import RESET, Request

log = logging.getLogger(__name__)


def asked_by(item: Object, names: Contract, now: datetime) -> Request | None:
    """What the object asks for, if that is understood and to be carried out still."""
    annotations = item["metadata"].get("annotations") or {}
    word = annotations.get(names.key(resetword.ANNOTATION))
    if not word:
        return None
    try:
        request = resetword.read(str(word))
    except ConfigError as error:
        log.warning("a reset is not understood: %s", error, extra={"once": str(error)})
        return None
    return request if request.fresh(now) else None


async def answer(
    api: Creates,
    names: Contract,
    instance: str,
    item: Object,
    request: Request,
    reason: str,
    text: str,
    *,
    at: datetime,
) -> None:
    """Tell what became of a request; any reason but RESET is a warning. instance: who tells."""
    meta, kind = item["metadata"], names.node_device
    about = {"apiVersion": kind.api_version, "kind": kind.kind}
    body = event_body(
        {**about, "name": meta["name"], "uid": meta["uid"]},
        name=event_name(),
        at=at,
        reporter=(names.driver, instance),
        action=resetword.ACTION,
        reason=reason,
        note=request.note(text),
        warning=reason != RESET,
    )
    try:
        await api.create(EVENT, body, body["metadata"]["namespace"])
    except ApiError as error:
        log.warning("an event was not told: %s", error)
