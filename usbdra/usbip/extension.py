# SPDX-License-Identifier: Apache-2.0
"""JSON bodies of our two messages, INVENTORY and GRANT: values to bytes and back.

They carry what the stock messages cannot: names, serials, the claim a device is asked for, and
why a request was refused. Spoken between usbdra peers on encrypted links only. Every field is
checked on the way in; unknown fields are ignored, so that a newer peer may say more. Must not
do I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from usbdra.errors import ProtocolError
from usbdra.tracing import traceparent
from usbdra.types import BusId, ClaimUid, DeviceName, RemoteDevice
from usbdra.usbip import errands, wire
from usbdra.usbip.errands import Reset, ResetAnswer
from usbdra.usbip.fields import (
    BODY_VERSION,
    array_of,
    clean_text,
    dump,
    hex4_of,
    load_body,
    matching,
    number_of,
    object_of,
    optional_of,
    text_of,
    triple_of,
)

MAX_MESSAGE_BYTES = 1024
MAX_TIMINGS = 16
MAX_OVER = 16
"""Sessions that one visit ends; the next ends more."""
MAX_WAIT = 300
"""Seconds that an answer may be kept back for news."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,63}", re.ASCII)
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}", re.ASCII)

Timings = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A ResourceClaim: its namespace, name and UID."""

    namespace: str
    name: str
    uid: ClaimUid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """Who asks for which device. `device` is a stable name or a bus id; `holder` is text for
    people (who holds the device, in other peers' refusals); `claim` is None without a cluster.
    `trace` is a traceparent, "" where the asker traces nothing: no peer has to know it, and one
    that is malformed is none, for it is no reason to refuse a device."""

    device: str
    claim: ClaimRef | None = None
    holder: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class GrantReply:
    """The device that was granted and the exporter's own (phase, seconds)."""

    device: RemoteDevice
    timings: Timings


@dataclass(frozen=True, slots=True)
class InventoryRequest:
    """A usbdra peer asks what is offered, with names. A cluster's controller brings its hosts
    outside what they cannot fetch: PEM of the CAs to believe, of their next certificate, and keys
    of sessions whose claim or node is gone. Of a host whose last answer had an edition it asks,
    by `seen` and `wait`, for the answer as soon as there is another edition, or after so many
    seconds. `reset` is carried out before the answer."""

    trust: str = ""
    certificate: str = ""
    over: tuple[str, ...] = ()
    seen: str = ""
    wait: int = 0
    reset: Reset | None = None


@dataclass(frozen=True, slots=True)
class HeldSession:
    """A session that a host tells its cluster's controller of: who has which device."""

    key: str
    device: str
    claim: ClaimRef
    node: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is offered; and from a host outside a cluster, for its controller, the PEM of a
    certificate request, the sessions that run, and a word that stands for this state of it."""

    devices: tuple[RemoteDevice, ...] = ()
    request: str = ""
    sessions: tuple[HeldSession, ...] = ()
    edition: str = ""
    reset: ResetAnswer | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not: a CamelCase word for machines, a text for people, and who has it if anyone."""

    reason: str
    message: str
    holder: str = ""


def pack_grant_request(request: GrantRequest) -> bytes:
    """The body of OP_REQ_GRANT."""
    claim = request.claim
    fields = {
        "v": BODY_VERSION,
        "device": request.device,
        "claim": claim and {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "holder": clean_text(request.holder),
    }
    if request.trace:
        fields["traceparent"] = request.trace
    return dump(fields)


def is_device_key(text: str) -> bool:
    """Whether a grant can be asked for by this word: a device name or a bus id."""
    return _LABEL.fullmatch(text) is not None or wire.is_busid(text)


def parse_grant_request(body: bytes) -> GrantRequest:
    """Raises ProtocolError naming the field."""
    fields = load_body(body)
    device = text_of(fields, "device")
    if not is_device_key(device):
        raise ProtocolError(f"device {device[:64]!r} is neither a device name nor a bus id")
    return GrantRequest(
        device=device,
        claim=_parse_claim(fields.get("claim")),
        holder=clean_text(text_of(fields, "holder", default="")),
        trace=traceparent.cleaned(fields.get("traceparent")),
    )


def _parse_claim(value: object) -> ClaimRef | None:
    if value is None:
        return None
    fields = object_of(value, "claim")
    parts = []
    for key, pattern in (("namespace", _LABEL), ("name", _SUBDOMAIN), ("uid", _UID)):
        text = text_of(fields, key)
        if not pattern.fullmatch(text):
            raise ProtocolError(f"claim {key} {text[:64]!r} is malformed")
        parts.append(text)
    return ClaimRef(parts[0], parts[1], ClaimUid(parts[2]))


def pack_grant_reply(reply: GrantReply) -> bytes:
    """The body of a successful OP_REP_GRANT."""
    timings = [[phase, round(seconds, 6)] for phase, seconds in reply.timings[:MAX_TIMINGS]]
    return dump({"v": BODY_VERSION, "device": _device_fields(reply.device), "timings": timings})


def parse_grant_reply(body: bytes) -> GrantReply:
    """Raises ProtocolError naming the field."""
    fields = load_body(body)
    return GrantReply(
        device=_parse_device(object_of(fields.get("device"), "device")),
        timings=_parse_timings(fields.get("timings", [])),
    )


def _parse_timings(value: object) -> Timings:
    timings = []
    for item in array_of(value, "timings", MAX_TIMINGS):
        pair = array_of(item, "timings entry", 2)
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise ProtocolError("timings entry is not [phase, seconds]")
        seconds = pair[1]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ProtocolError("timings entry has no number of seconds")
        if not 0 <= seconds < math.inf:
            raise ProtocolError(f"timings entry has {seconds} seconds")
        timings.append((clean_text(pair[0], 64), float(seconds)))
    return tuple(timings)


def pack_refusal(refusal: Refusal) -> bytes:
    """The body of an OP_REP_GRANT or OP_REP_INVENTORY whose status is not 0."""
    return dump(
        {
            "v": BODY_VERSION,
            "reason": refusal.reason,
            "message": clean_text(refusal.message, MAX_MESSAGE_BYTES),
            "holder": clean_text(refusal.holder),
        }
    )


def parse_refusal(body: bytes) -> Refusal:
    """Raises ProtocolError naming the field."""
    fields = load_body(body)
    reason = text_of(fields, "reason")
    if not _REASON.fullmatch(reason):
        raise ProtocolError(f"reason {reason[:64]!r} is not one word")
    return Refusal(
        reason=reason,
        message=clean_text(text_of(fields, "message"), MAX_MESSAGE_BYTES),
        holder=clean_text(text_of(fields, "holder", default="")),
    )


def pack_inventory_request(request: InventoryRequest) -> bytes:
    """The body of OP_REQ_INVENTORY; none where nothing is brought. Raises ValueError when it would
    exceed MAX_BODY."""
    fields: dict[str, Any] = {
        "trust": request.trust,
        "certificate": request.certificate,
        "over": list(request.over[:MAX_OVER]),
        "seen": request.seen,
        "wait": request.wait,
        "reset": request.reset and errands.reset_fields(request.reset),
    }
    found = {key: value for key, value in fields.items() if value}
    body = dump({"v": BODY_VERSION, **found}) if found else b""
    if len(body) > wire.MAX_BODY:
        raise ValueError(f"certificates for a host take {len(body)} bytes")
    return body


def parse_inventory_request(body: bytes) -> InventoryRequest:
    """Raises ProtocolError naming the field."""
    if not body:
        return InventoryRequest()
    fields = load_body(body)
    over = array_of(fields.get("over", []), "over", MAX_OVER)
    return InventoryRequest(
        text_of(fields, "trust", ""),
        text_of(fields, "certificate", ""),
        tuple(matching({"over": key}, "over", _UID) for key in over),
        matching(fields, "seen", _UID) if "seen" in fields else "",
        number_of(fields, "wait", 0, MAX_WAIT) if "wait" in fields else 0,
        errands.parse_reset(fields.get("reset")),
    )


def pack_inventory(devices: Sequence[RemoteDevice], more: Inventory | None = None) -> bytes:
    """The body of a successful OP_REP_INVENTORY; `more` is what a host says beside its devices.

    Raises ValueError when it would exceed MAX_INVENTORY_BODY (several hundred devices with the
    longest texts); a cut list would hide devices without a word.
    """
    fields: dict[str, Any] = {
        "v": BODY_VERSION,
        "devices": [_device_fields(device) for device in devices],
    }
    if more is not None and more.request:
        fields["request"] = more.request
    if more is not None and more.sessions:
        fields["sessions"] = [_session_fields(one) for one in more.sessions]
    if more is not None and more.edition:
        fields["edition"] = more.edition
    if more is not None and more.reset:
        fields["reset"] = errands.answer_fields(more.reset)
    body = dump(fields)
    if len(body) > wire.MAX_INVENTORY_BODY:
        raise ValueError(f"an inventory of {len(devices)} devices takes {len(body)} bytes")
    return body


def parse_inventory(body: bytes) -> tuple[RemoteDevice, ...]:
    """The devices alone. Raises ProtocolError naming the field."""
    return parse_whole_inventory(body).devices


def parse_whole_inventory(body: bytes) -> Inventory:
    """Raises ProtocolError naming the field."""
    fields = load_body(body)
    items = array_of(fields.get("devices"), "devices", wire.MAX_DEVICES)
    devices = tuple(_parse_device(object_of(item, "device")) for item in items)
    sessions = array_of(fields.get("sessions", []), "sessions", wire.MAX_DEVICES)
    return Inventory(
        devices,
        text_of(fields, "request", ""),
        tuple(_parse_session(object_of(item, "session")) for item in sessions),
        matching(fields, "edition", _UID) if "edition" in fields else "",
        errands.parse_answer(fields.get("reset")),
    )


def _session_fields(session: HeldSession) -> dict[str, Any]:
    claim = session.claim
    return {
        "session": session.key,
        "device": session.device,
        "claim": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "node": session.node,
    }


def _parse_session(fields: dict[str, Any]) -> HeldSession:
    claim = _parse_claim(fields.get("claim"))
    if claim is None:
        raise ProtocolError("session has no claim")
    return HeldSession(
        matching(fields, "session", _UID),
        matching(fields, "device", _LABEL),
        claim,
        matching(fields, "node", _SUBDOMAIN),
    )


def _device_fields(device: RemoteDevice) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "busid": device.busid,
        "busnum": device.busnum,
        "devnum": device.devnum,
        "speed": device.speed_code,
        "vendor": device.vendor_id,
        "productId": device.product_id,
        "bcd": device.bcd,
        "class": [device.class_code, device.subclass, device.protocol],
        "configuration": device.configuration,
        "interfaces": [list(triple) for triple in device.interfaces[:0xFF]],
        "available": device.available,
    }
    texts = {
        "name": device.name,
        "serial": device.serial,
        "product": device.product,
        "manufacturer": device.manufacturer,
        "reason": device.reason,
    }
    fields.update((key, clean_text(text)) for key, text in texts.items() if text)
    return fields


def _parse_device(fields: dict[str, Any]) -> RemoteDevice:
    busid = text_of(fields, "busid")
    if not wire.is_busid(busid):
        raise ProtocolError(f"busid {busid[:64]!r} is not a bus id")
    name = optional_of(fields, "name")
    if name is not None and not _LABEL.fullmatch(name):
        raise ProtocolError(f"name {name[:64]!r} is not a device name")
    class_code, subclass, protocol = triple_of(fields.get("class"), "class")
    available = fields.get("available")
    if not isinstance(available, bool):
        raise ProtocolError("available is not true or false")
    return RemoteDevice(
        busid=BusId(busid),
        busnum=number_of(fields, "busnum", 1, 0xFFFF),
        devnum=number_of(fields, "devnum", 1, 0xFFFF),
        speed_code=number_of(fields, "speed", 0, 6),
        vendor_id=hex4_of(fields, "vendor"),
        product_id=hex4_of(fields, "productId"),
        bcd=hex4_of(fields, "bcd"),
        class_code=class_code,
        subclass=subclass,
        protocol=protocol,
        configuration=number_of(fields, "configuration", 0, 0xFF),
        interfaces=tuple(
            triple_of(item, "interface")
            for item in array_of(fields.get("interfaces"), "interfaces", 0xFF)
        ),
        name=None if name is None else DeviceName(name),
        serial=optional_of(fields, "serial"),
        product=optional_of(fields, "product"),
        manufacturer=optional_of(fields, "manufacturer"),
        available=available,
        reason=optional_of(fields, "reason") or "",
    )
