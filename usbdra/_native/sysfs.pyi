# SPDX-License-Identifier: Apache-2.0
__pyx_capi__: dict[str, object]  # what the other modules of this package cimport

def read(path: bytes, limit: int = 4096, /) -> bytes:
    """The file's bytes, at most `limit` (1 to 65536), read into a stack buffer.

    A sysfs attribute is one page at most. Raises OSError with the operation and path, and
    OSError(EFBIG) when the file holds more than `limit`.
    """

def read_at(dir_fd: int, name: bytes, limit: int = 4096, /) -> bytes:
    """As `read`, below an open directory. Borrows dir_fd."""

def write(path: bytes, data: bytes, /) -> None:
    """Store with exactly one write(); a short write is OSError(EIO). Never creates a file."""
