# SPDX-License-Identifier: Apache-2.0
"""Conversations before the hand-over, as state machines without sockets: bytes in, values out.

Owns the order of messages on one connection, for both ends. After a successful IMPORT or GRANT
the stream belongs to the kernels, so not one byte beyond a message may be taken from the socket:
`bytes_needed` says how many to read next, and `feed` refuses more. Must not do I/O and must not
know of time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from usbdra.errors import ProtocolError
from usbdra.types import BusId, RemoteDevice
from usbdra.usbip import extension, wire
from usbdra.usbip.extension import GrantReply, GrantRequest, Inventory, InventoryRequest, Refusal
from usbdra.usbip.wire import Status

T = TypeVar("T")
Parser = Generator[int, bytes, T]
"""Yields how many bytes it needs, is sent exactly so many, returns the message."""


class Reading(Generic[T]):
    """One message being read. `result` is set once `bytes_needed` is 0."""

    def __init__(self, parser: Parser[T]) -> None:
        self._parser = parser
        self._buffer = bytearray()
        self._missing = next(parser)
        self._result: tuple[T] | None = None

    @property
    def bytes_needed(self) -> int:
        """How many bytes may be read from the stream now; 0 when the message is complete."""
        return self._missing

    @property
    def result(self) -> T:
        """The message. Raises RuntimeError while it is incomplete."""
        if self._result is None:
            raise RuntimeError(f"message is incomplete: {self._missing} bytes missing")
        return self._result[0]

    def feed(self, data: bytes) -> None:
        """Take up to `bytes_needed` bytes. Raises ProtocolError for what the peer got wrong,
        ValueError for more bytes than asked for."""
        if len(data) > self._missing:
            raise ValueError(f"{len(data)} bytes fed, {self._missing} needed")
        self._buffer += data
        self._missing -= len(data)
        # A parser may ask for nothing (an empty body): it goes on until it lacks something.
        while not self._missing and self._result is None:
            chunk = bytes(self._buffer)
            self._buffer.clear()
            try:
                self._missing = self._parser.send(chunk)
            except StopIteration as stop:
                self._result = (stop.value,)


@dataclass(frozen=True, slots=True)
class DevlistRequest:
    """A stock peer asks what is offered."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A stock peer asks for a device."""

    busid: BusId


Request = DevlistRequest | InventoryRequest | ImportRequest | GrantRequest


class BadRequest(ProtocolError):
    """A request that cannot be served; `reply` is what the peer should still be told."""

    def __init__(self, message: str, reply: bytes = b"") -> None:
        super().__init__(message)
        self.reply = reply


class _Phase(Enum):
    REQUEST = "request"
    REPLY = "reply"
    HANDED_OVER = "handed over"
    CLOSED = "closed"


class ServerSession:
    """The exporter's side of one connection.

    Feed until a request comes back, answer it with exactly one of the `reply_*` methods, whose
    bytes are to be sent as they are; then the next request may follow, unless a device was
    granted or `closed` is True. `extensions` admits INVENTORY and GRANT (encrypted links).
    """

    def __init__(self, *, extensions: bool) -> None:
        self._extensions = extensions
        self._phase = _Phase.REQUEST
        self._reading: Reading[Request] = Reading(_read_request(extensions))
        self._request: Request | None = None

    @property
    def bytes_needed(self) -> int:
        """How many bytes may be read now; 0 while a reply is due and after the end."""
        return self._reading.bytes_needed if self._phase is _Phase.REQUEST else 0

    @property
    def at_boundary(self) -> bool:
        """True when no byte of a request has come yet: the peer may leave without offence."""
        return self.bytes_needed == wire.HEADER_SIZE

    @property
    def handed_over(self) -> bool:
        """True once a device was granted: the stream belongs to the kernels."""
        return self._phase is _Phase.HANDED_OVER

    def feed(self, data: bytes) -> Request | None:
        """Take bytes; the request when it is complete. Raises BadRequest, and is closed then."""
        if self._phase is not _Phase.REQUEST:
            raise RuntimeError(f"fed in phase {self._phase.value}")
        try:
            self._reading.feed(data)
        except ProtocolError:
            self._phase = _Phase.CLOSED
            raise
        if self._reading.bytes_needed:
            return None
        self._request = self._reading.result
        self._phase = _Phase.REPLY
        return self._request

    def reply_devices(
        self, devices: Sequence[RemoteDevice], more: Inventory | None = None
    ) -> bytes:
        """Answer a devlist or inventory request. more: what is said beside the devices, to the
        latter."""
        request = self._answer(DevlistRequest, InventoryRequest)
        if isinstance(request, DevlistRequest):
            reply = wire.pack_devlist(devices)
        else:
            reply = _framed(
                wire.OP_REP_INVENTORY, Status.OK, extension.pack_inventory(devices, more)
            )
        self._next_request()
        return reply

    def reply_granted(self, reply: GrantReply) -> bytes:
        """Answer an import or grant request with the device; the conversation ends here."""
        request = self._answer(ImportRequest, GrantRequest)
        self._phase = _Phase.HANDED_OVER
        if isinstance(request, ImportRequest):
            return wire.pack_header(wire.OP_REP_IMPORT) + wire.pack_device(reply.device)
        return _framed(wire.OP_REP_GRANT, Status.OK, extension.pack_grant_reply(reply))

    def reply_refused(self, status: Status, refusal: Refusal) -> bytes:
        """Answer any request with a refusal; a stock peer gets the status alone."""
        request = self._answer(*_REPLY_CODES)
        code = _REPLY_CODES[type(request)]
        self._next_request()
        if isinstance(request, InventoryRequest | GrantRequest):
            return _framed(code, status, extension.pack_refusal(refusal))
        # Stock clients stop reading at a status; a count after it would be left unread.
        return wire.pack_header(code, status)

    def _answer(self, *kinds: type[Request]) -> Request:
        if self._phase is not _Phase.REPLY or not isinstance(self._request, kinds):
            raise RuntimeError(f"no such reply is due in phase {self._phase.value}")
        return self._request

    def _next_request(self) -> None:
        self._phase = _Phase.REQUEST
        self._request = None
        self._reading = Reading(_read_request(self._extensions))


_REPLY_CODES: dict[type[Request], int] = {
    DevlistRequest: wire.OP_REP_DEVLIST,
    InventoryRequest: wire.OP_REP_INVENTORY,
    ImportRequest: wire.OP_REP_IMPORT,
    GrantRequest: wire.OP_REP_GRANT,
}

_EXTENSIONS = frozenset((wire.OP_REQ_INVENTORY, wire.OP_REQ_GRANT))


def _framed(code: int, status: Status, body: bytes) -> bytes:
    return wire.pack_header(code, status) + wire.pack_u32(len(body)) + body


def _read_request(extensions: bool) -> Parser[Request]:
    header = wire.parse_header((yield wire.HEADER_SIZE))
    reply_code = header.code & wire.REPLY_MASK
    try:
        if header.version != wire.VERSION:
            raise ProtocolError(f"peer speaks USB/IP version {header.version:#06x}, not 0x0111")
        if header.code == wire.OP_REQ_DEVLIST:
            return DevlistRequest()
        if header.code == wire.OP_REQ_IMPORT:
            return ImportRequest(wire.parse_busid((yield wire.BUSID_SIZE)))
        if extensions and header.code in _EXTENSIONS:
            length = wire.parse_u32((yield wire.LENGTH_SIZE), "body length", wire.MAX_BODY)
            body = yield length
            if header.code == wire.OP_REQ_GRANT:
                return extension.parse_grant_request(body)
            return extension.parse_inventory_request(body)
        raise ProtocolError(f"unknown request code {header.code:#06x}")
    except ProtocolError as exc:
        # A stock peer gets the 8 bytes every reply starts with, enough to see our version.
        reply = wire.pack_header(reply_code, Status.ERROR)
        if extensions and header.code in _EXTENSIONS:
            body = extension.pack_refusal(Refusal(ProtocolError.reason, str(exc)))
            reply = _framed(reply_code, Status.ERROR, body)
        raise BadRequest(str(exc), reply) from exc


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A reply as the importer sees it: `value` on success, else a status and, from a usbdra
    peer, the reason it gave."""

    status: int
    value: T | None = None
    refusal: Refusal | None = None


def request_devlist() -> tuple[bytes, Reading[Answer[tuple[RemoteDevice, ...]]]]:
    """The bytes to send, and the reply to read."""
    return wire.pack_header(wire.OP_REQ_DEVLIST), Reading(_read_devlist())


def request_inventory() -> tuple[bytes, Reading[Answer[tuple[RemoteDevice, ...]]]]:
    """The bytes to send, and the reply to read. Encrypted links only."""
    return _framed(wire.OP_REQ_INVENTORY, Status.OK, b""), Reading(_read_inventory())


def request_visit(request: InventoryRequest) -> tuple[bytes, Reading[Answer[Inventory]]]:
    """The same of a cluster's controller and a host of it. Raises ValueError for too much."""
    body = extension.pack_inventory_request(request)
    return _framed(wire.OP_REQ_INVENTORY, Status.OK, body), Reading(_read_visit())


def request_import(busid: str) -> tuple[bytes, Reading[Answer[RemoteDevice]]]:
    """The bytes to send, and the reply to read. Raises ValueError for what is no bus id."""
    message = wire.pack_header(wire.OP_REQ_IMPORT) + wire.pack_busid(busid)
    return message, Reading(_read_import())


def request_grant(request: GrantRequest) -> tuple[bytes, Reading[Answer[GrantReply]]]:
    """The bytes to send, and the reply to read. Encrypted links only."""
    body = extension.pack_grant_request(request)
    return _framed(wire.OP_REQ_GRANT, Status.OK, body), Reading(_read_grant())


def _read_reply_header(code: int) -> Parser[int]:
    """The status of a reply with this code."""
    header = wire.parse_header((yield wire.HEADER_SIZE))
    if header.version != wire.VERSION:
        raise ProtocolError(f"peer speaks USB/IP version {header.version:#06x}, not 0x0111")
    if header.code != code:
        raise ProtocolError(f"reply has code {header.code:#06x}, expected {code:#06x}")
    return header.status


def _read_devlist() -> Parser[Answer[tuple[RemoteDevice, ...]]]:
    status = yield from _read_reply_header(wire.OP_REP_DEVLIST)
    if status != Status.OK:
        return Answer(status)
    count = wire.parse_u32((yield wire.COUNT_SIZE), "device count", wire.MAX_DEVICES)
    devices = []
    for _ in range(count):
        device, interface_count = wire.parse_device((yield wire.DEVICE_SIZE))
        records = yield interface_count * wire.INTERFACE_SIZE
        devices.append(replace(device, interfaces=wire.parse_interfaces(records)))
    return Answer(status, tuple(devices))


def _read_import() -> Parser[Answer[RemoteDevice]]:
    status = yield from _read_reply_header(wire.OP_REP_IMPORT)
    if status != Status.OK:
        return Answer(status)
    return Answer(status, wire.parse_device((yield wire.DEVICE_SIZE)).device)


def _read_inventory() -> Parser[Answer[tuple[RemoteDevice, ...]]]:
    answer = yield from _read_visit()
    found = answer.value
    return Answer(answer.status, found.devices if found else None, answer.refusal)


def _read_visit() -> Parser[Answer[Inventory]]:
    status = yield from _read_reply_header(wire.OP_REP_INVENTORY)
    body = yield from _read_body(status, wire.MAX_INVENTORY_BODY)
    if status != Status.OK:
        return Answer(status, refusal=extension.parse_refusal(body))
    return Answer(status, extension.parse_whole_inventory(body))


def _read_grant() -> Parser[Answer[GrantReply]]:
    status = yield from _read_reply_header(wire.OP_REP_GRANT)
    body = yield from _read_body(status, wire.MAX_GRANT_BODY)
    if status != Status.OK:
        return Answer(status, refusal=extension.parse_refusal(body))
    return Answer(status, extension.parse_grant_reply(body))


def _read_body(status: int, limit: int) -> Parser[bytes]:
    limit = limit if status == Status.OK else wire.MAX_BODY
    length = wire.parse_u32((yield wire.LENGTH_SIZE), "body length", limit)
    return (yield length)
