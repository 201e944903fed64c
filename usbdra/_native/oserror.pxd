# SPDX-License-Identifier: Apache-2.0
# The one door from errno to OSError. `str(error)` names the operation and what it was done to:
# `[Errno 16] attach: Device or resource busy: '/sys/.../attach'`.
from cpython.bytes cimport PyBytes_AsStringAndSize

from usbdra._native.libc cimport strerror

cdef extern from "Python.h":
    str PyUnicode_DecodeFSDefaultAndSize(const char* text, Py_ssize_t size)


cdef inline int raise_path(int number, str operation, bytes path) except -1:
    """Raise OSError `number` for an operation on a file; `filename` is the path as str."""
    raise OSError(
        number,
        f"{operation}: {strerror(number).decode()}",
        PyUnicode_DecodeFSDefaultAndSize(path, len(path)),
    )


cdef inline int raise_fd(int number, str operation, int fd) except -1:
    """Raise OSError `number` for an operation on an open descriptor, which has no path."""
    raise OSError(number, f"{operation} on fd {fd}: {strerror(number).decode()}")


cdef inline const char* c_path(bytes path) except NULL:
    """Borrow the path's bytes. Raises ValueError for a zero byte inside, never cuts there."""
    cdef char* text = NULL
    PyBytes_AsStringAndSize(path, &text, NULL)
    return text
