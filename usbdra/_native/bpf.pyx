# SPDX-License-Identifier: Apache-2.0
"""Device programs of cgroups (BPF_CGROUP_DEVICE): which are there, what they say, another in place.

Owns the bpf(2) calls and their limits. Must not know what a program means, nor build one.
Layouts: include/uapi/linux/bpf.h; behaviour: kernel/bpf/{syscall,cgroup}.c.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

cimport usbdra._native.libc as libc
from usbdra._native.oserror cimport raise_fd

cdef extern from "<sys/syscall.h>" nogil:
    const long SYS_bpf

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)

cdef enum:
    # Own numbers: libc headers of older build machines lack some.
    PROG_LOAD = 5
    PROG_ATTACH = 8
    PROG_GET_FD_BY_ID = 13
    OBJ_GET_INFO_BY_FD = 15
    PROG_QUERY = 16
    TYPE_CGROUP_DEVICE = 15
    ATTACH_CGROUP_DEVICE = 6
    F_ALLOW_MULTI = 2
    F_REPLACE = 4
    MAX_PROGRAMS = 64  # of one cgroup (BPF_CGROUP_MAX_PROGS)
    MAX_BYTES = 1 << 19  # 65536 instructions: a thousand times what runtimes load
    LOG_BYTES = 1 << 16
    INSTRUCTION = 8

ALLOW_MULTI = F_ALLOW_MULTI
CGROUP_DEVICE = TYPE_CGROUP_DEVICE


cdef struct QueryAttr:
    uint32_t target_fd
    uint32_t attach_type
    uint32_t query_flags
    uint32_t attach_flags
    uint64_t prog_ids
    uint32_t prog_cnt
    uint32_t padding


cdef struct InfoAttr:
    uint32_t fd
    uint32_t size
    uint64_t info


cdef struct ProgInfo:
    uint32_t type
    uint32_t id
    unsigned char tag[8]
    uint32_t jited_len
    uint32_t xlated_len
    uint64_t jited
    uint64_t xlated


cdef struct LoadAttr:
    uint32_t type
    uint32_t count
    uint64_t instructions
    uint64_t license
    uint32_t log_level
    uint32_t log_size
    uint64_t log
    uint32_t kern_version
    uint32_t flags
    char name[16]


cdef struct AttachAttr:
    uint32_t target_fd
    uint32_t program_fd
    uint32_t attach_type
    uint32_t flags
    uint32_t replace_fd


cdef int call(int command, void* attr, size_t size) noexcept nogil:
    """bpf(2): its result or -errno. EAGAIN: a signal came during verification."""
    cdef long found
    cdef int _attempt
    for _attempt in range(5):
        found = syscall(SYS_bpf, command, attr, size)
        if found >= 0:
            return <int>found
        if libc.errno != libc.EINTR and libc.errno != libc.EAGAIN:
            break
    return -libc.errno


def device_programs(int cgroup, /):
    """Identifiers of the device programs attached to this very cgroup, in order, and their flags.

    Borrows cgroup, a descriptor of its directory. Raises OSError: EBADF when it is no directory of
    cgroup v2, EINVAL when the kernel has no such programs, ENOSPC for more than it can have.
    """
    cdef uint32_t ids[MAX_PROGRAMS]
    cdef QueryAttr attr
    cdef int error
    libc.memset(&attr, 0, sizeof(attr))
    attr.target_fd = <uint32_t>cgroup
    attr.attach_type = ATTACH_CGROUP_DEVICE
    attr.prog_ids = <uint64_t><uintptr_t>&ids[0]
    attr.prog_cnt = MAX_PROGRAMS
    with nogil:
        error = call(PROG_QUERY, &attr, sizeof(attr))
    if error < 0:
        raise_fd(-error, "device_programs", cgroup)
    found = tuple([ids[at] for at in range(min(<int>attr.prog_cnt, <int>MAX_PROGRAMS))])
    return found, attr.attach_flags


def open_program(unsigned int number, /):
    """A descriptor of the program with this identifier; the caller closes it.

    Raises OSError: ENOENT when it is gone.
    """
    cdef uint32_t attr[3]
    cdef int fd
    attr[0], attr[1], attr[2] = number, 0, 0
    with nogil:
        fd = call(PROG_GET_FD_BY_ID, &attr[0], sizeof(attr))
    if fd < 0:
        raise OSError(-fd, f"open_program {number}: {libc.strerror(-fd).decode()}")
    return fd


def instructions(int program, /):
    """Type of a program and its instructions as the kernel runs them, 8 bytes each.

    Borrows program. Raises OSError: EFBIG above 65536 instructions, EPERM when they are kept
    from us.
    """
    cdef ProgInfo info
    cdef InfoAttr attr
    cdef bytes text
    cdef char* at
    cdef uint32_t size
    cdef int error
    libc.memset(&info, 0, sizeof(info))
    attr.fd, attr.size = <uint32_t>program, <uint32_t>sizeof(info)
    attr.info = <uint64_t><uintptr_t>&info
    with nogil:
        error = call(OBJ_GET_INFO_BY_FD, &attr, sizeof(attr))
    if error < 0:
        raise_fd(-error, "instructions", program)
    size = info.xlated_len
    if size > MAX_BYTES:
        raise_fd(libc.EFBIG, "instructions", program)
    text = PyBytes_FromStringAndSize(NULL, size)
    at = text
    libc.memset(&info, 0, sizeof(info))
    info.xlated_len = size
    info.xlated = <uint64_t><uintptr_t>at
    attr.size = <uint32_t>sizeof(info)
    with nogil:
        libc.memset(at, 0, size)
        error = call(OBJ_GET_INFO_BY_FD, &attr, sizeof(attr))
    if error < 0:
        raise_fd(-error, "instructions", program)
    if size == 0 or info.xlated == 0 or info.xlated_len != size:
        raise_fd(libc.EPERM, "instructions", program)
    return info.type, text


def load(bytes text not None, /):
    """Load a device program of these instructions; a descriptor that the caller closes.

    Raises ValueError for a size that is none, OSError with the verifier's last words.
    """
    cdef LoadAttr attr
    cdef const char* at = text
    cdef bytearray log
    cdef char* log_at
    cdef int fd
    if not text or len(text) % INSTRUCTION or len(text) > MAX_BYTES:
        raise ValueError(f"a program of {len(text)} bytes")
    libc.memset(&attr, 0, sizeof(attr))
    attr.type = <uint32_t>TYPE_CGROUP_DEVICE
    attr.count = <uint32_t>(len(text) // INSTRUCTION)
    attr.instructions = <uint64_t><uintptr_t>at
    attr.license = <uint64_t><uintptr_t><const char*>b"Apache-2.0"
    libc.memcpy(attr.name, b"usbdra_device", sizeof(b"usbdra_device"))
    with nogil:
        fd = call(PROG_LOAD, &attr, sizeof(attr))
    if fd >= 0:
        return fd
    log = bytearray(LOG_BYTES)
    log_at = log
    attr.log_level, attr.log_size = 1, <uint32_t>LOG_BYTES
    attr.log = <uint64_t><uintptr_t>log_at
    cdef int first = fd
    with nogil:
        fd = call(PROG_LOAD, &attr, sizeof(attr))
    if fd >= 0:
        return fd
    words = bytes(log).partition(b"\0")[0].decode("utf-8", "replace")
    words = "; ".join(words.split("\n")).strip("; ")[-300:]
    raise OSError(-first, f"load: {libc.strerror(-first).decode()}: {words or 'no word of why'}")


def attach(int cgroup, int program, unsigned int flags=F_ALLOW_MULTI, int replaced=-1, /):
    """Attach a device program to a cgroup, in the place of `replaced` when that is given.

    Borrows all. flags: those of the programs that are there. In place means at no moment without
    one. Raises OSError: ENOENT when `replaced` is not attached any more.
    """
    cdef AttachAttr attr
    cdef int error
    libc.memset(&attr, 0, sizeof(attr))
    attr.target_fd = <uint32_t>cgroup
    attr.program_fd = <uint32_t>program
    attr.attach_type = ATTACH_CGROUP_DEVICE
    attr.flags = flags
    if replaced >= 0:
        attr.flags |= F_REPLACE
        attr.replace_fd = <uint32_t>replaced
    with nogil:
        error = call(PROG_ATTACH, &attr, sizeof(attr))
    if error < 0:
        raise_fd(-error, "attach", cgroup)
