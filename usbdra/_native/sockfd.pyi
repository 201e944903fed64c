# SPDX-License-Identifier: Apache-2.0
def send_fds(sock: int, data: bytes, fds: tuple[int, ...], /) -> None:
    """Send data (1 to 65536 bytes) with up to 4 fds in one sendmsg (SCM_RIGHTS). Borrows all."""

def recv_fds(sock: int, max_bytes: int, max_fds: int, /) -> tuple[bytes, list[int]]:
    """One recvmsg; the caller keeps the returned fds (all CLOEXEC). b'' at end of stream.

    More fds than `max_fds`, or a cut message, closes every received fd and raises
    OSError(EMSGSIZE).
    """

def peer_credentials(sock: int, /) -> tuple[int, int, int]:
    """(pid, uid, gid) of the peer of a Unix socket (SO_PEERCRED)."""

def open_fds() -> int:
    """Open fds this module received and handed out so far; -1 in builds without the counter."""
