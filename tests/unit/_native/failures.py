# SPDX-License-Identifier: Apache-2.0
"""What every error of the native core must carry, and how its writes are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def fails(number: int, operation: str, path: Path) -> Iterator[None]:
    """OSError with this errno, whose text and fields name the operation and the path."""
    with pytest.raises(OSError, match=operation) as caught:
        yield
    error = caught.value
    assert error.errno == number, error
    assert error.filename == str(path)
    assert str(error) == f"[Errno {number}] {operation}: {os.strerror(number)}: {str(path)!r}"


@contextmanager
def fails_on_fd(number: int, operation: str, fd: int) -> Iterator[None]:
    """OSError with this errno, whose text names the operation and the descriptor."""
    with pytest.raises(OSError, match=operation) as caught:
        yield
    error = caught.value
    assert error.errno == number, error
    assert error.filename is None
    assert str(error) == f"[Errno {number}] {operation} on fd {fd}: {os.strerror(number)}"


def writes_so_far() -> int:
    """write(2) calls of this thread, as the kernel counts them."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscw"])


@contextmanager
def one_write() -> Iterator[None]:
    """The body makes exactly one write(2) call."""
    before = writes_so_far()
    yield
    assert writes_so_far() - before == 1
