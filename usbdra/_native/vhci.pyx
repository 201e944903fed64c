# SPDX-License-Identifier: Apache-2.0
"""vhci_hcd's files: the status table of all ports, attach and detach.

Owns reading, parsing and the two stores. Must not choose ports or wait for anything.
"""

from collections import namedtuple

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t

cimport usbdra._native.libc as libc
cimport usbdra._native.status as status
from usbdra._native.oserror cimport c_path, raise_path
from usbdra._native.sysfs cimport read_file, store

cdef enum:
    PATH_ROOM = 4096
    TEXT_LIMIT = 65535  # one page of the largest kind; a controller's text has some 1500 bytes
    MAX_CONTROLLERS = 128  # VHCI_HCD's own limit, drivers/usb/usbip/Kconfig

HUB_UNKNOWN = status.ANY_HUB
HUB_HIGH = status.HIGH_HUB
HUB_SUPER = status.SUPER_HUB
STATE_FREE = status.FREE
STATE_ATTACHING = status.ATTACHING
STATE_USED = status.USED
STATE_ERROR = status.FAILED
SOCKFD_NONE = -1

Row = namedtuple(
    "Row", "port controller hub state speed devid sockfd local_busid", module=__name__
)
Row.__doc__ = "One port: numbers as in the text. local_busid is b'' when there is none."
cdef object make_row = Row._make


class StatusFormatError(ValueError):
    """A status text that is not of a known shape. `header` holds its first line (cut to 120)."""

    def __init__(self, message, header=""):
        super().__init__(message)
        self.header = header


cdef str shown(const char* text, size_t size):
    return text[:<Py_ssize_t>size].decode("ascii", "backslashreplace")


cdef int raise_fault(int code, const status.Fault* fault) except -1:
    """FaultCode or -ENOMEM as the exception it stands for."""
    cdef str header = shown(fault.header, fault.header_size)
    if code == -libc.ENOMEM:
        raise MemoryError
    if code == status.NOT_A_HEADER:
        what = f"unknown header {header!r}"
    elif code == status.NOT_A_ROW:
        what = f"malformed row {shown(fault.row, fault.row_size)!r} under header {header!r}"
    elif code == status.PORT_TWICE:
        what = f"port {fault.port} is there twice"
    else:
        what = f"port {fault.port} is above {status.MAX_PORTS - 1}"
    raise StatusFormatError(f"vhci status of controller {fault.controller}: {what}", header)


cdef object row_of(const status.Entry* entry):
    return make_row((
        entry.port,
        entry.controller,
        entry.hub,
        entry.state,
        entry.speed,
        entry.devid,
        SOCKFD_NONE if entry.no_socket else entry.socket,
        PyBytes_FromStringAndSize(entry.busid, entry.busid_size),
    ))


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class StatusTable:
    """Parsed rows of all controllers in a C array; Row tuples are made only when asked for."""

    cdef status.Entries entries

    def __dealloc__(self):
        libc.free(self.entries.items)

    def __len__(self):
        return self.entries.count

    def __getitem__(self, Py_ssize_t index, /):
        if index < 0:
            index += self.entries.count
        if not 0 <= index < self.entries.count:
            raise IndexError("no such row")
        return row_of(&self.entries.items[index])

    def __iter__(self):
        cdef Py_ssize_t index
        for index in range(self.entries.count):
            yield row_of(&self.entries.items[index])

    cdef bint matches(self, Py_ssize_t index, int hub, int state) noexcept nogil:
        cdef const status.Entry* entry = &self.entries.items[index]
        return (hub == -1 or entry.hub == hub) and (state == -1 or entry.state == state)

    def count(self, int hub, int state, /):
        """How many rows have this hub and state; -1 for either stands for any."""
        cdef Py_ssize_t index
        cdef Py_ssize_t found = 0
        for index in range(self.entries.count):
            found += self.matches(index, hub, state)
        return found

    def first(self, int hub, int state, Py_ssize_t start=0, /):
        """Index of the first such row at or after index `start`, or -1."""
        cdef Py_ssize_t index
        if start < 0:
            raise ValueError(f"first: start {start} is negative")
        for index in range(start, self.entries.count):
            if self.matches(index, hub, state):
                return index
        return -1

    def not_free(self):
        """Rows in any state but free, in port order."""
        cdef Py_ssize_t index
        cdef list found = []
        for index in range(self.entries.count):
            if self.entries.items[index].state != status.FREE:
                found.append(row_of(&self.entries.items[index]))
        found.sort()  # by port: it comes first in a Row and is there once
        return found


def parse(list texts not None, /):
    """Parse the texts of `status`, `status.1`, ... (index = controller).

    Raises StatusFormatError for an unknown header, a malformed row, a port number twice, or
    more than 4096 ports.
    """
    cdef StatusTable table = StatusTable.__new__(StatusTable)
    cdef status.Fault fault
    cdef bytes text
    cdef int32_t controller = 0
    cdef int error
    for text in texts:
        if text is None:
            raise TypeError("parse: None among the texts")
        error = status.add_text(
            &table.entries, controller, <status.Text><const char*>text, <size_t>len(text), &fault
        )
        if error < 0:
            raise_fault(error, &fault)
        controller += 1
    return table


cdef int status_path(char* to, const char* directory, int controller) noexcept nogil:
    """`<directory>/status` or `<directory>/status.<n>`: 0 or -ENAMETOOLONG."""
    cdef int size
    if controller == 0:
        size = libc.snprintf(to, PATH_ROOM, b"%s/status", directory)
    else:
        size = libc.snprintf(to, PATH_ROOM, b"%s/status.%d", directory, controller)
    return 0 if 0 <= size < PATH_ROOM else -libc.ENAMETOOLONG


cdef int read_all(
    status.Entries* entries, const char* directory, int count, char* path, status.Fault* fault
) noexcept nogil:
    """Read and parse `count` files: 0, -errno with `path` at the culprit, or a FaultCode."""
    cdef char text[TEXT_LIMIT + 1]
    cdef int controller
    cdef int error
    cdef ssize_t size
    for controller in range(count):
        error = status_path(path, directory, controller)
        if error < 0:
            return error
        size = read_file(libc.AT_FDCWD, path, text, TEXT_LIMIT)
        if size < 0:
            return <int>size
        error = status.add_text(entries, controller, <status.Text>text, <size_t>size, fault)
        if error < 0:
            return error
    return 0


def read_status(bytes directory not None, int count, /):
    """Read and parse `status` .. `status.<count-1>` of a vhci_hcd.0 directory without leaving C.

    Raises OSError with the path of the file that could not be read, and as `parse` does.
    """
    cdef StatusTable table = StatusTable.__new__(StatusTable)
    cdef const char* name = c_path(directory)
    cdef char path[PATH_ROOM]
    cdef status.Fault fault
    cdef int error
    if not 1 <= count <= MAX_CONTROLLERS:
        raise ValueError(f"read_status: count {count} is not in 1..{MAX_CONTROLLERS}")
    fault.header_size = 0
    with nogil:
        error = read_all(&table.entries, name, count, path, &fault)
    if error <= status.NOT_A_HEADER or error == -libc.ENOMEM:
        raise_fault(error, &fault)
    if error < 0:
        raise_path(-error, "read_status", <bytes>path)
    return table


def attach(
    bytes directory not None, unsigned int port, int sockfd, unsigned int devid,
    unsigned int speed, /
):
    """One write of `port sockfd devid speed` to `attach`, decimal. Borrows sockfd.

    The kernel takes its own reference. Raises OSError (EBUSY or EINVAL: port taken meanwhile).
    """
    cdef bytes path = directory + b"/attach"
    if sockfd < 0:
        raise_path(libc.EBADF, "attach", path)
    store("attach", path, b"%d %d %d %d" % (port, sockfd, devid, speed))


def detach(bytes directory not None, unsigned int port, /):
    """One write of the port to `detach`. Done only when its row is back at STATE_FREE."""
    store("detach", directory + b"/detach", b"%d" % port)
