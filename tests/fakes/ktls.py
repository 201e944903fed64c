# SPDX-License-Identifier: Apache-2.0
"""Kernel TLS for kernels without it: a record layer of our own behind the same two calls.

`UserTls` implements transport.ktls.KernelTls. Once both directions have keys, the descriptor is
pointed at one end of a socket pair (dup2), so the code under test reads and writes plain bytes on
the same number as with the real thing; a thread carries the other end to and from the TCP
connection as TLS 1.3 records (RFC 8446 5.2), made with the very keys, IVs and sequence numbers
it was given. Wrong ones do not decrypt. A record that is no data ends the link, as in the kernel.

    tls = UserTls()
    ...                # kernel=tls for server and dial
    tls.close()        # joins all threads
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from usbdra.transport.ktls import RX, TX

DATA = 23
MAX_PLAIN = 1 << 14


@dataclass
class RecordKeys:
    """One direction: seals or opens records, counting them."""

    key: bytes
    iv: bytes
    sequence: int = 0

    def _nonce(self) -> bytes:
        number = self.sequence.to_bytes(12, "big")
        self.sequence += 1
        return bytes(a ^ b for a, b in zip(self.iv, number, strict=True))

    def seal(self, plain: bytes, kind: int = DATA) -> bytes:
        header = bytes((23, 3, 3)) + (len(plain) + 1 + 16).to_bytes(2, "big")
        return header + AESGCM(self.key).encrypt(self._nonce(), plain + bytes((kind,)), header)

    def open(self, header: bytes, body: bytes) -> tuple[int, bytes]:
        inner = AESGCM(self.key).decrypt(self._nonce(), body, header).rstrip(b"\0")
        return inner[-1], inner[:-1]


@dataclass
class _Link:
    keys: dict[int, RecordKeys] = field(default_factory=dict)


class UserTls:
    """See the module. `records` counts what was opened and `errors` names what ended links."""

    def __init__(self) -> None:
        self._links: dict[int, _Link] = {}
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.records = 0
        self.errors: list[str] = []
        self.seen: list[tuple[int, int, int]] = []
        """(direction, cipher, sequence number) of each set_keys call."""

    def attach_ulp(self, sock: int, /) -> None:
        with socket.socket(fileno=os.dup(sock)) as copy:
            try:
                copy.getpeername()
            except OSError:
                raise OSError(errno.ENOTCONN, "setsockopt(TCP_ULP)") from None
        self._links[sock] = _Link()

    def set_keys(
        self, sock: int, direction: int, cipher: int, key: bytes, iv: bytes, rec_seq: int = 0, /
    ) -> None:
        assert len(key) == {51: 16, 52: 32}[cipher]
        assert len(iv) == 12
        link = self._links[sock]
        assert direction not in link.keys
        self.seen.append((direction, cipher, rec_seq))
        link.keys[direction] = RecordKeys(key, iv, rec_seq)
        if link.keys.keys() == {TX, RX}:
            del self._links[sock]
            self._start(sock, link)

    def _start(self, sock: int, link: _Link) -> None:
        tcp = socket.socket(fileno=os.dup(sock))
        tcp.setblocking(True)
        inner, outer = socket.socketpair()
        inner.setblocking(False)
        os.dup2(inner.fileno(), sock, inheritable=False)
        inner.close()
        outer.setblocking(True)
        self._sockets += (tcp, outer)
        for target, keys in ((self._seal, link.keys[TX]), (self._open, link.keys[RX])):
            thread = threading.Thread(target=target, args=(tcp, outer, keys), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _seal(self, tcp: socket.socket, plain: socket.socket, keys: RecordKeys) -> None:
        with contextlib.suppress(OSError):
            while data := plain.recv(MAX_PLAIN):
                tcp.sendall(keys.seal(data))
        _shutdown(tcp, socket.SHUT_WR)

    def _open(self, tcp: socket.socket, plain: socket.socket, keys: RecordKeys) -> None:
        try:
            while header := _exactly(tcp, 5):
                kind, data = keys.open(header, _exactly(tcp, int.from_bytes(header[3:5], "big")))
                if kind != DATA:
                    raise ValueError(f"record of type {kind}")
                self.records += 1
                plain.sendall(data)
        except (InvalidTag, ValueError, OSError) as exc:
            self.errors.append(str(exc) or type(exc).__name__)
        _shutdown(plain, socket.SHUT_WR)

    def close(self) -> None:
        for sock in self._sockets:
            _shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()
        for sock in self._sockets:
            sock.close()


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            return b""
        data += chunk
    return data


def _shutdown(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)
