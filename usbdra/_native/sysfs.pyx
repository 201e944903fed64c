# SPDX-License-Identifier: Apache-2.0
"""Kernel attribute files: read into a stack buffer, store with exactly one write.

Owns open, read, write and close of such files. Must not know what the files mean.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

cimport usbdra._native.libc as libc
from usbdra._native.debug cimport check
from usbdra._native.oserror cimport c_path, raise_path

cdef enum:
    READ_LIMIT = 65536


cdef int close_fd(int fd) noexcept nogil:
    """Close once. Linux frees the number even when it says EINTR, so that is a success."""
    if libc.close(fd) == 0 or libc.errno == libc.EINTR:
        return 0
    return -libc.errno


cdef int open_file(int dir_fd, const char* path, int flags) noexcept nogil:
    """openat(2), CLOEXEC, never making a file: an fd or -errno."""
    cdef int fd
    while True:
        fd = libc.openat(dir_fd, path, flags | libc.O_CLOEXEC | libc.O_NOCTTY)
        if fd >= 0:
            return fd
        if libc.errno != libc.EINTR:
            return -libc.errno


cdef ssize_t fill(int fd, char* to, size_t room) noexcept nogil:
    """Read to the end of the file or until `room` bytes are there: bytes read or -errno."""
    cdef size_t have = 0
    cdef ssize_t got
    while have < room:
        got = libc.read(fd, to + have, room - have)
        if got > 0:
            have += <size_t>got
            check(have <= room)
        elif got == 0:
            break
        elif libc.errno != libc.EINTR:
            return -libc.errno
    return <ssize_t>have


cdef ssize_t read_file(int dir_fd, const char* path, char* to, size_t limit) noexcept nogil:
    """Open, read, close. `to` has room for limit + 1 bytes. Bytes read or -errno (-EFBIG)."""
    cdef int fd = open_file(dir_fd, path, libc.O_RDONLY)
    cdef ssize_t have
    if fd < 0:
        return fd
    have = fill(fd, to, limit + 1)
    close_fd(fd)  # read only: nothing that close could still lose
    if have > <ssize_t>limit:
        return -libc.EFBIG
    return have


cdef int write_once(const char* path, const char* data, size_t size) noexcept nogil:
    """Open, one write, close: 0 or -errno. A short write is -EIO: the kernel took half."""
    cdef int fd = open_file(libc.AT_FDCWD, path, libc.O_WRONLY)
    cdef ssize_t done
    cdef int error = 0
    cdef int closed
    if fd < 0:
        return fd
    while True:
        done = libc.write(fd, data, size)
        if done >= 0:
            break
        error = libc.errno
        if error != libc.EINTR:
            break
        error = 0  # nothing was stored: the same single write again
    if done >= 0 and <size_t>done != size:
        error = libc.EIO
    closed = close_fd(fd)
    return -error if error != 0 else closed


cdef int store(str operation, bytes path, bytes data) except -1:
    """`write_once` without the GIL; raises OSError that names `operation` and the path."""
    cdef const char* name = c_path(path)
    cdef const char* area = data
    cdef size_t size = <size_t>len(data)
    cdef int error
    if size == 0:
        raise ValueError(f"{operation}: no data to write")
    with nogil:
        error = write_once(name, area, size)
    if error < 0:
        raise_path(-error, operation, path)
    return 0


cdef bytes load(int dir_fd, bytes path, Py_ssize_t limit):
    cdef char area[READ_LIMIT + 1]
    cdef const char* name = c_path(path)
    cdef ssize_t have
    if not 1 <= limit <= READ_LIMIT:
        raise ValueError(f"read: limit {limit} is not in 1..{READ_LIMIT}")
    with nogil:
        have = read_file(dir_fd, name, area, <size_t>limit)
    if have < 0:
        raise_path(<int>-have, "read", path)
    return PyBytes_FromStringAndSize(area, have)


def read(bytes path not None, Py_ssize_t limit=4096, /):
    """The file's bytes, at most `limit` (1 to 65536).

    Raises OSError with operation and path; OSError(EFBIG) when the file holds more.
    """
    return load(libc.AT_FDCWD, path, limit)


def read_at(int dir_fd, bytes name not None, Py_ssize_t limit=4096, /):
    """As `read`, below an open directory. Borrows dir_fd."""
    if dir_fd < 0:  # AT_FDCWD is negative too and would quietly mean another directory
        raise_path(libc.EBADF, "read", name)
    return load(dir_fd, name, limit)


def write(bytes path not None, bytes data not None, /):
    """Store with exactly one write(); a short write is OSError(EIO). Never creates a file.

    Raises OSError with operation and path, ValueError when there is nothing to write.
    """
    store("write", path, data)
