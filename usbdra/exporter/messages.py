# SPDX-License-Identifier: Apache-2.0
"""What the exporter's process and the agent say to each other: values to bytes and back. Pure.

Owns kinds, bodies and their checks on both sides: neither end trusts the other's bytes. The frame
is transport/packets.py's; grants, refusals and inventories are spelled as on the network
(usbip/extension.py), with a few fields more. Must not do I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from usbdra.errors import ProtocolError
from usbdra.exporter.broker import Granted, GrantRequest, Peer
from usbdra.tracing import traceparent
from usbdra.types import NodeName, RemoteDevice
from usbdra.usbip import extension
from usbdra.usbip.extension import GrantReply, Refusal
from usbdra.usbip.fields import BODY_VERSION, load_body
from usbdra.usbip.wire import MAX_GRANT_BODY, MAX_INVENTORY_BODY, Status

MAX_REQUEST = MAX_GRANT_BODY + 1024
"""Bytes of any request's body: a grant and who asks for it."""
MAX_REPLY = MAX_INVENTORY_BODY
"""Bytes of any reply's body."""
MAX_PEM = 64 * 1024
"""Characters of each of the three PEM texts of an identity."""

_NODE = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_SESSION = re.compile(r"[0-9A-Za-z]{1,64}", re.ASCII)


class Kind(IntEnum):
    """What a message is. Requests are the exporter's, replies the agent's."""

    INVENTORY = 1
    ACQUIRE = 2
    HAND_OVER = 3
    ABANDON = 4
    IDENTITY = 5
    DEVICES = 65
    GRANTED = 66
    DONE = 67
    PEMS = 68
    REFUSED = 127


REPLIES = {
    Kind.INVENTORY: Kind.DEVICES,
    Kind.ACQUIRE: Kind.GRANTED,
    Kind.HAND_OVER: Kind.DONE,
    Kind.ABANDON: Kind.DONE,
    Kind.IDENTITY: Kind.PEMS,
}
"""The reply to each request that was not refused."""


@dataclass(frozen=True, slots=True)
class Pems:
    """Our certificate, its key and the CAs to trust, as PEM; all empty for "what you have"."""

    stamp: str
    cert: str = ""
    key: str = field(default="", repr=False)
    ca: str = ""


def pack_inventory(peer: Peer) -> bytes:
    """The body of INVENTORY."""
    return _dump({"peer": _peer_fields(peer)})


def parse_peer(body: bytes) -> Peer:
    """The peer of INVENTORY or ACQUIRE. Raises ProtocolError naming the field."""
    fields = _object(_load(body).get("peer"), "peer")
    node = fields.get("node")
    if node is not None and not (isinstance(node, str) and _NODE.fullmatch(node)):
        raise ProtocolError(f"peer node {str(node)[:64]!r} is malformed")
    port = fields.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 0xFFFF:
        raise ProtocolError("peer port is not a port")
    encrypted = fields.get("encrypted")
    if not isinstance(encrypted, bool):
        raise ProtocolError("peer encrypted is not true or false")
    address = _text(fields, "address", 64)
    uid = _text(fields, "nodeUID", 64)
    return Peer(address, port, None if node is None else NodeName(node), encrypted, uid)


def pack_acquire(request: GrantRequest, peer: Peer) -> bytes:
    """The body of ACQUIRE."""
    return _more(extension.pack_grant_request(request), peer=_peer_fields(peer))


def parse_acquire(body: bytes) -> tuple[GrantRequest, Peer]:
    """Raises ProtocolError naming the field."""
    return extension.parse_grant_request(body), parse_peer(body)


def pack_granted(granted: Granted) -> bytes:
    """The body of GRANTED."""
    reply = GrantReply(granted.device, granted.timings)
    return _more(extension.pack_grant_reply(reply), session=granted.session)


def parse_granted(body: bytes) -> Granted:
    """Raises ProtocolError naming the field."""
    reply = extension.parse_grant_reply(body)
    return Granted(parse_session(body), reply.device, reply.timings)


def pack_session(session: str, trace: str = "") -> bytes:
    """The body of HAND_OVER and ABANDON; trace: as of GrantRequest."""
    return _dump({"session": session, **({"traceparent": trace} if trace else {})})


def parse_session(body: bytes) -> str:
    """Raises ProtocolError naming the field."""
    return _session(_load(body))


def parse_hand_over(body: bytes) -> tuple[str, str]:
    """Session and trace. Raises ProtocolError naming the field."""
    fields = _load(body)
    return _session(fields), traceparent.cleaned(fields.get("traceparent"))


def _session(fields: Mapping[str, Any]) -> str:
    session = _text(fields, "session", 64)
    if not _SESSION.fullmatch(session):
        raise ProtocolError("session is no session's key")
    return session


def pack_done() -> bytes:
    """The body of DONE."""
    return _dump({})


def pack_refused(status: Status, refusal: Refusal) -> bytes:
    """The body of REFUSED."""
    return _more(extension.pack_refusal(refusal), status=int(status))


def parse_refused(body: bytes) -> tuple[Status, Refusal]:
    """Raises ProtocolError naming the field."""
    refusal = extension.parse_refusal(body)
    number = _load(body).get("status")
    for status in Status:
        if status is not Status.OK and number == status and not isinstance(number, bool):
            return status, refusal
    raise ProtocolError("status is none that a refusal has")


def pack_devices(devices: Sequence[RemoteDevice]) -> bytes:
    """The body of DEVICES. Raises ValueError when it would be too large."""
    return extension.pack_inventory(devices)


def parse_devices(body: bytes) -> Sequence[RemoteDevice]:
    """Raises ProtocolError naming the field."""
    return extension.parse_inventory(body)


def pack_have(stamp: str) -> bytes:
    """The body of IDENTITY: the stamp of what the exporter has, empty for nothing."""
    return _dump({"have": stamp})


def parse_have(body: bytes) -> str:
    """Raises ProtocolError naming the field."""
    return _text(_load(body), "have", 128)


def pack_pems(pems: Pems) -> bytes:
    """The body of PEMS."""
    return _dump({"stamp": pems.stamp, "cert": pems.cert, "key": pems.key, "ca": pems.ca})


def parse_pems(body: bytes) -> Pems:
    """Raises ProtocolError naming the field, never with what is in it."""
    fields = _load(body)
    texts = (_text(fields, key, MAX_PEM) for key in ("cert", "key", "ca"))
    return Pems(_text(fields, "stamp", 128), *texts)


def _peer_fields(peer: Peer) -> dict[str, object]:
    return {
        "address": peer.address,
        "port": peer.port,
        "node": peer.node,
        "encrypted": peer.encrypted,
        "nodeUID": peer.node_uid,
    }


def _more(body: bytes, **fields: object) -> bytes:
    """A body with fields that its own parser passes over."""
    return _dump({**json.loads(body), **fields})


def _dump(fields: Mapping[str, object]) -> bytes:
    text = json.dumps({"v": BODY_VERSION, **fields}, separators=(",", ":"))
    return text.encode("ascii")


def _load(body: bytes) -> Mapping[str, Any]:
    return load_body(body)


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} is not an object")
    return value


def _text(fields: Mapping[str, Any], key: str, limit: int) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or len(value) > limit:
        raise ProtocolError(f"{key} is not a text of at most {limit} characters")
    return value
