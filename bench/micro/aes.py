# SPDX-License-Identifier: Apache-2.0
"""A device's bulk transfers over one TCP connection, in plain or in records of a link's cipher.

Owns both ends: a process that answers each request when a device of a given rate would have, and
a reader with some requests under way. Records are sealed and opened where kernel TLS does it, in
the sender's and the reader's own turn, by OpenSSL's AES-256-GCM: natively, for what AES costs where
the processor has it is what no emulated node can tell, and this machine's kernel has no TLS.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HEADER = 48
"""Bytes of a USB/IP request and of its answer's head (Documentation/usb/usbip_protocol.rst)."""
TRANSFER = 64 * 1024
RATES = {"480 Mbit/s": 53_248_000, "5 Gbit/s": 460_000_000}
"""Most bytes a second of bulk data: 13 packets of 512 bytes a microframe (USB 2.0, table 5-10);
5 Gbit/s less 8b/10b and what a packet needs beside its data (USB 3.0)."""
NEAR = 1e-4
"""Seconds of a round trip between machines beside each other; on one machine there is none."""
_RECORD = 16 * 1024
"""Most a record holds (RFC 8446, 5.1)."""
_TAG, _TYPE = 16, b"\x17\x03\x03"
_HEAD = len(_TYPE) + 2
_KEY = bytes(range(32))
_FORK = multiprocessing.get_context("fork")


def has_aes() -> bool:
    """Whether the processor says it has AES instructions."""
    with open("/proc/cpuinfo") as f:
        return any(" aes" in line for line in f if line.startswith("flags"))


class _Messages(Protocol):
    """One end of a connection, whose messages have one size each way; what they say is nothing."""

    def send(self) -> None: ...
    def receive(self) -> None: ...


class _Plain:
    def __init__(self, sock: socket.socket, sent: int, received: int) -> None:
        self._sock = sock
        self._out, self._in = memoryview(bytes(sent)), memoryview(bytearray(received))

    def send(self) -> None:
        self._sock.sendall(self._out)

    def receive(self) -> None:
        _fill(self._sock, self._in)


class _Sealed:
    """A message as it is on the wire: of each record type, version, length, sealed bytes and tag.

    Where each lies is found once, so that Python's cutting is not measured.
    """

    def __init__(self, size: int) -> None:
        text, at = memoryview(bytearray(size)), 0
        wire = memoryview(bytearray(size + -(-size // _RECORD) * (_HEAD + _TAG)))
        self.records: list[tuple[memoryview, bytes, memoryview]] = []
        """(text, head, sealed bytes) of each."""
        for start in range(0, size, _RECORD):
            part = text[start : start + _RECORD]
            sealed = len(part) + _TAG
            head = _TYPE + sealed.to_bytes(2, "big")
            wire[at : at + _HEAD] = head
            at += _HEAD
            self.records.append((part, head, wire[at : at + sealed]))
            at += sealed
        self.wire = wire


class _Encrypted:
    """The same in records."""

    def __init__(self, sock: socket.socket, sent: int, received: int) -> None:
        self._sock, self._aead = sock, AESGCM(_KEY)
        self._sent, self._received = itertools.count(), itertools.count()
        self._out, self._in = _Sealed(sent), _Sealed(received)

    def send(self) -> None:
        for part, head, sealed in self._out.records:
            self._aead.encrypt_into(next(self._sent).to_bytes(12, "big"), part, head, sealed)
        self._sock.sendall(self._out.wire)

    def receive(self) -> None:
        _fill(self._sock, self._in.wire)
        for part, head, sealed in self._in.records:
            self._aead.decrypt_into(next(self._received).to_bytes(12, "big"), sealed, head, part)


class Reader:
    """Reads transfers with `depth` requests under way."""

    def __init__(self, end: _Messages, depth: int) -> None:
        self._end, self._depth = end, depth

    def read(self, transfers: int) -> None:
        """So many of them. Raises ConnectionError when the other end goes, InvalidTag."""
        asked = 0
        for done in range(transfers):
            while asked < min(transfers, done + self._depth):
                self._end.send()
                asked += 1
            self._end.receive()


@contextmanager
def reader(encrypted: bool, rate: float, depth: int, round_trip: float = 0.0) -> Iterator[Reader]:
    """A reader, and a device behind its connection, so many seconds away."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        device = _FORK.Process(
            target=_device, args=(listening, encrypted, rate, round_trip), daemon=True
        )
        device.start()
        sock = socket.create_connection(listening.getsockname())
    try:
        yield Reader(_end(sock, encrypted, sent=HEADER, received=HEADER + TRANSFER), depth)
    finally:
        sock.close()
        device.join(10)


def _end(sock: socket.socket, encrypted: bool, *, sent: int, received: int) -> _Messages:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return (_Encrypted if encrypted else _Plain)(sock, sent, received)


def _device(listening: socket.socket, encrypted: bool, rate: float, away: float) -> None:
    """Answers one connection's requests in turn, each when the device has moved its bytes and the
    network would have taken its time."""
    sock, _ = listening.accept()
    end = _end(sock, encrypted, sent=HEADER + TRANSFER, received=HEADER)
    due: list[float] = []
    free = 0.0
    with contextlib.suppress(ConnectionError):
        while True:
            # while the device works this spins: a sleep is as long as some transfers
            while not due or select.select([sock], [], [], 0)[0]:
                end.receive()
                free = max(free, time.perf_counter()) + TRANSFER / rate
                due.append(free + away)
            if time.perf_counter() >= due[0]:
                due.pop(0)
                end.send()


def _fill(sock: socket.socket, data: memoryview) -> None:
    at = 0
    while at < len(data):
        got = sock.recv_into(data[at:], 0, socket.MSG_WAITALL)
        if not got:
            raise ConnectionError("the other end went")
        at += got
