# SPDX-License-Identifier: Apache-2.0
"""Descriptors over Unix sockets: SCM_RIGHTS both ways, and who is at the other end.

Owns received descriptors until they are handed to the caller. Must not know what they are for.
"""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize

cimport usbdra._native.libc as libc
from usbdra._native.debug cimport COUNTERS, check
from usbdra._native.oserror cimport raise_fd

cdef enum:
    DATA_LIMIT = 65536
    SEND_FDS = 4
    KERNEL_FDS = 253  # SCM_MAX_FD of include/net/scm.h: no message carries more
    CONTROL_ROOM = 1280  # >= CMSG_SPACE(253 ints) + CMSG_SPACE(struct ucred), checked below


# Debug builds only: fd -> (device, inode) of what was handed out.
cdef dict handed_out = {}


cdef ssize_t send_message(
    int sock, const char* data, size_t size, const int* fds, size_t count
) noexcept nogil:
    """One sendmsg(2): 0 or -errno; -EIO when a stream took only a part."""
    cdef char control[CONTROL_ROOM]
    cdef libc.iovec part
    cdef libc.msghdr message
    cdef libc.cmsghdr* header
    cdef ssize_t sent
    check(count <= SEND_FDS)
    libc.memset(&message, 0, sizeof(message))
    part.iov_base = <void*>data
    part.iov_len = size
    message.msg_iov = &part
    message.msg_iovlen = 1
    if count > 0:
        libc.memset(control, 0, sizeof(control))
        message.msg_control = control
        message.msg_controllen = libc.CMSG_SPACE(count * sizeof(int))
        header = libc.CMSG_FIRSTHDR(&message)
        header.cmsg_level = libc.SOL_SOCKET
        header.cmsg_type = libc.SCM_RIGHTS
        header.cmsg_len = libc.CMSG_LEN(count * sizeof(int))
        libc.memcpy(libc.CMSG_DATA(header), fds, count * sizeof(int))
    while True:
        sent = libc.sendmsg(sock, &message, libc.MSG_NOSIGNAL)
        if sent >= 0:
            return 0 if <size_t>sent == size else -libc.EIO
        if libc.errno != libc.EINTR:
            return -libc.errno


cdef size_t take_fds(libc.msghdr* message, int* fds) noexcept nogil:
    """Copy all descriptors of a message, at most KERNEL_FDS; returns how many."""
    cdef libc.cmsghdr* header = libc.CMSG_FIRSTHDR(message)
    cdef size_t have = 0
    cdef size_t size
    while header != NULL:
        if header.cmsg_level == libc.SOL_SOCKET and header.cmsg_type == libc.SCM_RIGHTS:
            size = header.cmsg_len - libc.CMSG_LEN(0)
            check(have + size // sizeof(int) <= KERNEL_FDS)
            libc.memcpy(fds + have, libc.CMSG_DATA(header), size)
            have += size // sizeof(int)
        header = libc.CMSG_NXTHDR(message, header)
    return have


cdef void close_all(const int* fds, size_t count) noexcept nogil:
    cdef size_t index
    for index in range(count):
        libc.close(fds[index])


cdef ssize_t receive_message(
    int sock, char* to, size_t room, int* fds, size_t wanted, size_t* count
) noexcept nogil:
    """One recvmsg(2): bytes or -errno. On -EMSGSIZE every received descriptor is closed."""
    cdef char control[CONTROL_ROOM]
    cdef libc.iovec part
    cdef libc.msghdr message
    cdef ssize_t got
    check(libc.CMSG_SPACE(KERNEL_FDS * sizeof(int)) + libc.CMSG_SPACE(sizeof(libc.ucred))
          <= sizeof(control))
    count[0] = 0
    libc.memset(&message, 0, sizeof(message))
    part.iov_base = to
    part.iov_len = room
    message.msg_iov = &part
    message.msg_iovlen = 1
    while True:
        # Room for all the kernel can send: what it must cut it drops without a word of how many.
        message.msg_control = control
        message.msg_controllen = sizeof(control)
        got = libc.recvmsg(sock, &message, libc.MSG_CMSG_CLOEXEC)
        if got >= 0:
            break
        if libc.errno != libc.EINTR:
            return -libc.errno
    count[0] = take_fds(&message, fds)
    # Descriptors without data would look like the end of the stream and be forgotten.
    if (
        count[0] > wanted
        or message.msg_flags & (libc.MSG_TRUNC | libc.MSG_CTRUNC)
        or (got == 0 and count[0] > 0)
    ):
        close_all(fds, count[0])
        count[0] = 0
        return -libc.EMSGSIZE
    return got


cdef int peer_of(int sock, libc.ucred* peer) noexcept nogil:
    """SO_PEERCRED of a connected Unix socket: 0 or -errno.

    The kernel answers for any socket, with the all-ones user when it knows nothing.
    """
    cdef int domain = 0
    cdef libc.socklen_t size = sizeof(int)
    if libc.getsockopt(sock, libc.SOL_SOCKET, libc.SO_DOMAIN, &domain, &size) != 0:
        return -libc.errno
    if domain != libc.AF_UNIX:
        return -libc.EAFNOSUPPORT
    size = sizeof(libc.ucred)
    if libc.getsockopt(sock, libc.SOL_SOCKET, libc.SO_PEERCRED, peer, &size) != 0:
        return -libc.errno
    return -libc.ENOTCONN if peer.uid == <unsigned int>-1 else 0


def send_fds(int sock, bytes data not None, tuple fds not None, /):
    """Send data (1 to 65536 bytes) with up to 4 fds in one sendmsg (SCM_RIGHTS). Borrows all.

    Raises OSError; EIO when a stream took only a part, after which the connection is of no use.
    """
    cdef int numbers[SEND_FDS]
    cdef const char* area = data
    cdef size_t size = <size_t>len(data)
    cdef size_t count = <size_t>len(fds)
    cdef size_t index
    cdef ssize_t error
    if not 1 <= size <= DATA_LIMIT:
        raise ValueError(f"send_fds: {size} bytes, not 1..{DATA_LIMIT}")
    if count > SEND_FDS:
        raise ValueError(f"send_fds: {count} descriptors, more than {SEND_FDS}")
    for index in range(count):
        numbers[index] = fds[index]
    with nogil:
        error = send_message(sock, area, size, numbers, count)
    if error < 0:
        raise_fd(<int>-error, "send_fds", sock)


def recv_fds(int sock, Py_ssize_t max_bytes, Py_ssize_t max_fds, /):
    """One recvmsg: (data, fds). The caller keeps the fds (all CLOEXEC). b'' at end of stream.

    More fds than `max_fds`, fds without data, or a cut message: every received fd is closed and
    OSError(EMSGSIZE) raised.
    """
    cdef char area[DATA_LIMIT]
    cdef int numbers[KERNEL_FDS]
    cdef size_t count = 0
    cdef size_t index
    cdef ssize_t got
    if not 1 <= max_bytes <= DATA_LIMIT:
        raise ValueError(f"recv_fds: max_bytes {max_bytes} is not in 1..{DATA_LIMIT}")
    if not 0 <= max_fds <= KERNEL_FDS:
        raise ValueError(f"recv_fds: max_fds {max_fds} is not in 0..{KERNEL_FDS}")
    with nogil:
        got = receive_message(sock, area, <size_t>max_bytes, numbers, <size_t>max_fds, &count)
    if got < 0:
        raise_fd(<int>-got, "recv_fds", sock)
    try:
        fds = [numbers[index] for index in range(count)]
        data = PyBytes_FromStringAndSize(area, got)
        if COUNTERS:
            remember(fds)
    except BaseException:
        close_all(numbers, count)
        raise
    return data, fds


def peer_credentials(int sock, /):
    """(pid, uid, gid) of the peer of a Unix socket. Borrows sock.

    Raises OSError: EAFNOSUPPORT for any other socket, ENOTCONN when there is no peer.
    """
    cdef libc.ucred peer
    cdef int error
    with nogil:
        error = peer_of(sock, &peer)
    if error < 0:
        raise_fd(-error, "peer_credentials", sock)
    return peer.pid, peer.uid, peer.gid


cdef remember(list fds):
    for fd in fds:
        handed_out[fd] = identity(fd)


cdef object identity(int fd):
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_fds():
    """How many fds this module handed out are still open; -1 in builds without the counter."""
    if not COUNTERS:
        return -1
    for fd, was in list(handed_out.items()):
        if identity(fd) != was:
            del handed_out[fd]
    return len(handed_out)
