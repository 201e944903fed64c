# SPDX-License-Identifier: Apache-2.0
"""A peer that means harm: speaks to an exporter's port with whatever certificate and bytes it has.

Owns one connection at a time, TLS in this process, so that it needs neither the product's importer
nor a kernel with TLS: the exporter cannot tell. Blocking; async tests call it in a thread. Where a
connection comes from is the caller's: a function that makes the TCP socket. Must not judge answers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.fakes.ktls import RecordKeys
from usbdra.errors import ProtocolError
from usbdra.transport import ktls
from usbdra.transport.keys import RANDOM_SIZE, SUITES, KeyLog, traffic_keys
from usbdra.types import BusId
from usbdra.usbip import session
from usbdra.usbip.extension import ClaimRef, GrantRequest
from usbdra.usbip.session import Answer, Reading

Connect = Callable[[], socket.socket]
"""Makes a connected, blocking TCP socket to an exporter's port, with a time limit."""

_T = TypeVar("_T")
_CHUNK = 65536
_RANDOM_AT = 11  # record header, handshake type and length, legacy version: RFC 8446 4.1.2

_RECORD_TYPES = (b"\x15", b"\x17")  # alert and protected data; our messages begin otherwise


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        said: the exporter's own words, the alert of TLS, or "closed" for an end without a word.
        reason: its stable word, where it refused in a message of ours.
        granted: the device's name; "" when none was given.
    """

    said: str
    reason: str = ""
    granted: str = ""


class Ended(Exception):
    """The exporter ended the connection; the text is the alert's name, or "closed"."""


class Wire:
    """A TLS 1.3 client on a connected socket. `sent` keeps every byte that went out.

    `identity`: a folder with tls.crt and tls.key, None for no certificate. The exporter's own
    certificate is not looked at. `protocols` and `newest` are what it offers.
    """

    def __init__(
        self,
        sock: socket.socket,
        identity: Path | None,
        protocols: Sequence[str] = (ktls.ENCRYPTED, ktls.CLEAR),
        newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        self.sent = bytearray()
        self._records = 0
        self._sock = sock
        self._log = os.memfd_create("attacker-keylog")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = newest
        context.set_alpn_protocols(list(protocols))
        context.keylog_filename = f"/proc/self/fd/{self._log}"
        if identity is not None:
            context.load_cert_chain(identity / "tls.crt", identity / "tls.key")
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)

    def shake_hands(self) -> None:
        """Raises Ended."""
        self._through(self._tls.do_handshake)

    def ask(self, message: bytes, reading: Reading[Answer[_T]]) -> Answer[_T]:
        """Send a request and read its answer. Raises Ended, ProtocolError."""
        self.write(message)
        while needed := reading.bytes_needed:
            reading.feed(self.read(needed))
        return reading.result

    def exactly(self, size: int) -> bytes:
        """So many plain bytes. Raises Ended."""
        data = b""
        while len(data) < size:
            data += self.read(size - len(data))
        return data

    def write(self, data: bytes) -> None:
        """Send plain bytes. Raises Ended."""
        if self._in_clear:
            self._send(data)
        else:
            self._through(lambda: self._tls.write(data))
            self._records += 1

    def read(self, most: int) -> bytes:
        """At least one plain byte, and at most so many. Raises Ended."""
        if not self._in_clear or self._record_waits():
            return self._through(lambda: self._tls.read(most)) or self._ended()
        return self._receive(most) or self._ended()

    def record(self, kind: int, data: bytes) -> None:
        """Send one record of any type, protected as the last word of this end."""
        random = bytes(self.sent[_RANDOM_AT : _RANDOM_AT + RANDOM_SIZE])
        log = KeyLog()
        log.add(os.pread(self._log, os.fstat(self._log).st_size, 0))
        suite = SUITES[(self._tls.cipher() or ("",))[0]]
        keys = traffic_keys(log.secrets(random).client, suite)
        self._send(RecordKeys(keys.key, keys.iv, self._records).seal(data, kind))

    @property
    def _in_clear(self) -> bool:
        return self._tls.selected_alpn_protocol() == ktls.CLEAR

    def close(self) -> None:
        """Forget the keys; the socket is the caller's."""
        os.close(self._log)

    def _record_waits(self) -> bool:
        """On a link in clear: a refused certificate's alert is a record all the same."""
        return self._sock.recv(1, socket.MSG_PEEK) in _RECORD_TYPES

    def _through(self, step: Callable[[], _T]) -> _T:
        """One step of OpenSSL with all the bytes that it wants sent and received."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._flush()
                self._in.write(self._receive(_CHUNK) or self._ended())
            except ssl.SSLError as error:
                raise Ended((error.reason or str(error)).replace("_", " ").lower()) from error
            finally:
                with contextlib.suppress(
                    OSError
                ):  # what comes in says more than what cannot go out
                    self._flush()

    def _flush(self) -> None:
        self._send(self._out.read())

    def _send(self, data: bytes) -> None:
        self.sent += data
        with contextlib.suppress(ConnectionError):  # what comes in says more
            self._sock.sendall(data)

    def _receive(self, most: int) -> bytes:
        try:
            return self._sock.recv(most)
        except ConnectionError:
            return b""

    @staticmethod
    def _ended() -> bytes:
        raise Ended("closed")


class Attacker:
    """Tries things at one exporter's port; each try is a connection of its own."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    @contextlib.contextmanager
    def wire(self, identity: Path | None, **offers: Any) -> Iterator[Wire]:
        """A connection with the handshake done. `offers` are Wire's. Raises Ended."""
        with self._connect() as sock, contextlib.closing(Wire(sock, identity, **offers)) as wire:
            wire.shake_hands()
            yield wire

    def grant(
        self, identity: Path | None, device: str, claim: ClaimRef | None, **offers: Any
    ) -> Outcome:
        """Ask for a device; what was given is let go at once."""
        try:
            with self.wire(identity, **offers) as wire:
                return ask_for(wire, device, claim)
        except Ended as error:
            return Outcome(str(error))

    def stock(self, identity: Path, busid: str) -> Outcome:
        """Ask as stock USB/IP does, which knows no claims, inside TLS."""
        try:
            with self.wire(identity) as wire:
                answer = wire.ask(*session.request_import(BusId(busid)))
        except Ended as error:
            return Outcome(str(error))
        given = answer.value.busid if answer.value is not None else ""
        return Outcome(f"status {answer.status}", granted=given)

    def message(self, identity: Path, data: bytes, answer: int) -> bytes:
        """Send any bytes inside TLS; the first `answer` bytes that come back, or none."""
        said = b""
        with contextlib.suppress(Ended), self.wire(identity) as wire:
            wire.write(data)
            said = wire.exactly(answer)
        return said

    def raw(self, data: bytes) -> bytes:
        """Send any bytes without TLS; all that comes back until the exporter ends it."""
        said = b""
        with self._connect() as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            while chunk := sock.recv(_CHUNK):
                said += chunk
        return said


def ask_for(wire: Wire, device: str, claim: ClaimRef | None) -> Outcome:
    """One request for a device. Raises Ended."""
    answer = wire.ask(*session.request_grant(GrantRequest(device, claim)))
    if answer.value is not None:
        return Outcome("granted", granted=answer.value.device.name or "")
    if answer.refusal is None:
        raise ProtocolError(f"status {answer.status} without a word")
    return Outcome(answer.refusal.message, answer.refusal.reason)
