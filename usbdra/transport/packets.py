# SPDX-License-Identifier: Apache-2.0
"""Messages between two processes of ours over a Unix socket: framed, bounded, with deadlines.

Owns the frame, the descriptor that may travel with it (SCM_RIGHTS) and the proof of who is at the
other end (SO_PEERCRED). Must not know what messages mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from usbdra.errors import (
    LinkError,
    NotAuthenticated,
    PeerTimeout,
    ProtocolError,
    Unreachable,
)
from usbdra.transport import sockets

HEADER = struct.Struct("!2sBBI")
"""Magic, version, kind of message, bytes of its body; in network order."""
MAGIC = b"UD"
VERSION = 1
MODE = 0o600


@dataclass(frozen=True, slots=True)
class Packet:
    """One received message. Whoever has it closes `fd`, when one came along."""

    kind: int
    body: bytes
    fd: int | None = None

    def close(self) -> None:
        """Close the descriptor that nobody wanted."""
        if self.fd is not None:
            os.close(self.fd)


def pack_header(kind: int, length: int) -> bytes:
    """The frame of a body of so many bytes."""
    return HEADER.pack(MAGIC, VERSION, kind, length)


def parse_header(header: bytes, limit: int) -> tuple[int, int]:
    """(kind, length of the body). Raises ProtocolError naming what is wrong."""
    magic, version, kind, length = HEADER.unpack(header)
    if magic != MAGIC:
        raise ProtocolError(f"a message that begins {header.hex(' ')} is none of ours")
    if version != VERSION:
        raise ProtocolError(f"a message has version {version}, not {VERSION}")
    if length > limit:
        raise ProtocolError(f"a message of kind {kind} says {length} bytes; {limit} are allowed")
    return kind, length


async def send(
    sock: socket.socket, kind: int, body: bytes, deadline: float, fd: int | None = None
) -> None:
    """Send one message whole. Borrows sock and fd. Raises PeerTimeout, LinkError."""
    from usbdra._native import sockfd

    header = pack_header(kind, len(body))
    what = "a message"
    if fd is None:
        await sockets.write_all(sock, header + body, deadline, what)
        return
    # The descriptor goes with the header, which is too short to be sent in part.
    while True:
        try:
            sockfd.send_fds(sock.fileno(), header, (fd,))
            break
        except BlockingIOError:
            await _ready(sock, deadline, what, write=True)
        except OSError as exc:
            raise LinkError(f"cannot send {what}: {os.strerror(exc.errno or 0)}") from exc
    await sockets.write_all(sock, body, deadline, what)


async def receive(
    sock: socket.socket, limit: int, deadline: float, *, with_fd: bool = False
) -> Packet | None:
    """The next message, of at most `limit` bytes; None when the other end has closed.

    A descriptor that comes uninvited, or a second one, ends the conversation and is closed.
    Raises ProtocolError, PeerTimeout, PeerClosed, LinkError.
    """
    what = "a message"
    first, fd = await _receive_first(sock, deadline, int(with_fd))
    if not first:
        return None
    try:
        rest = HEADER.size - len(first)
        header = first + (await sockets.read_exactly(sock, rest, deadline, what) if rest else b"")
        kind, length = parse_header(header, limit)
        # A descriptor sent with the body has no room made for it: the kernel closes it.
        body = await sockets.read_exactly(sock, length, deadline, what) if length else b""
    except BaseException:
        if fd is not None:
            os.close(fd)
        raise
    return Packet(kind, body, fd)


async def _receive_first(
    sock: socket.socket, deadline: float, max_fds: int
) -> tuple[bytes, int | None]:
    """The first bytes of a header and what came with them."""
    from usbdra._native import sockfd

    while True:
        try:
            data, fds = sockfd.recv_fds(sock.fileno(), HEADER.size, max_fds)
            return data, fds[0] if fds else None
        except BlockingIOError:
            await _ready(sock, deadline, "a message", write=False)
        except OSError as exc:
            if exc.errno == errno.EMSGSIZE:
                raise ProtocolError(f"more than {max_fds} descriptors came with a message") from exc
            raise LinkError(f"cannot receive: {os.strerror(exc.errno or 0)}") from exc


async def _ready(sock: socket.socket, deadline: float, what: str, *, write: bool) -> None:
    """Wait until the socket can be written, or read. Raises PeerTimeout."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    (loop.add_writer if write else loop.add_reader)(sock, wake)
    try:
        async with asyncio.timeout_at(deadline):
            await ready
    except TimeoutError as exc:
        raise PeerTimeout(f"nothing moved within the time for {what}") from exc
    finally:
        (loop.remove_writer if write else loop.remove_reader)(sock)


async def connect(path: Path, uid: int, deadline: float) -> socket.socket:
    """Connect to the process of user `uid` that listens at `path`; the caller closes.

    Raises Unreachable, NotAuthenticated when another user listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        async with asyncio.timeout_at(deadline):
            await asyncio.get_running_loop().sock_connect(sock, str(path))
        require_user(sock, uid)
    except TimeoutError as exc:
        sock.close()
        raise Unreachable(f"nobody answers at {path} in time") from exc
    except OSError as exc:
        sock.close()
        raise Unreachable(f"cannot connect to {path}: {os.strerror(exc.errno or 0)}") from exc
    except BaseException:
        sock.close()
        raise
    return sock


def require_user(sock: socket.socket, uid: int) -> None:
    """Raise NotAuthenticated unless the other end is a process of this user (SO_PEERCRED).

    Raises OSError for a socket without a peer: a full queue lets a non-blocking connect of a Unix
    socket look like a success.
    """
    from usbdra._native import sockfd

    pid, found, _gid = sockfd.peer_credentials(sock.fileno())
    if found != uid:
        raise NotAuthenticated(f"process {pid} of user {found} is not user {uid}")


def listen(path: Path, uid: int, backlog: int) -> socket.socket:
    """Listen at `path` for processes of user `uid`, in place of an earlier run. Raises OSError.

    The file's mode keeps others out; who comes is proved by `require_user` all the same.
    """
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.bind(str(path))
        if uid != os.geteuid():
            os.chown(path, uid, -1)
        path.chmod(MODE)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
