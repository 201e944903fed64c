# SPDX-License-Identifier: Apache-2.0
"""Reading and storing attribute files: sizes, one write, errors that name what and where."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit._native.failures import fails, one_write
from usbdra._native import sysfs


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_reads_the_whole_file(tmp_path: Path, directory: int) -> None:
    (tmp_path / "speed").write_bytes(b"480\n")
    assert sysfs.read(bytes(tmp_path / "speed")) == b"480\n"
    assert sysfs.read_at(directory, b"speed") == b"480\n"


def test_binary_and_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "descriptors"
    path.write_bytes(bytes(range(256)))
    assert sysfs.read(bytes(path)) == bytes(range(256))
    path.write_bytes(b"")
    assert sysfs.read(bytes(path)) == b""


@pytest.mark.parametrize("limit", [1, 7, 4096, 65536])
def test_limit_is_the_largest_size_that_is_read(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * limit)
    assert sysfs.read(bytes(path), limit) == b"x" * limit
    path.write_bytes(b"x" * (limit + 1))
    with fails(errno.EFBIG, "read", path):
        sysfs.read(bytes(path), limit)


def test_default_limit_is_a_page(tmp_path: Path, directory: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4097)
    with fails(errno.EFBIG, "read", path):
        sysfs.read(bytes(path))
    with fails(errno.EFBIG, "read", Path("file")):
        sysfs.read_at(directory, b"file")
    assert len(sysfs.read_at(directory, b"file", 4097)) == 4097


@pytest.mark.parametrize("limit", [0, -1, 65537])
def test_limit_out_of_range(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        sysfs.read(b"/proc/self/comm", limit)


def test_a_file_that_comes_in_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def write_twice() -> None:
        with path.open("wb", buffering=0) as file:
            file.write(b"one")
            file.write(b"two")

    writer = threading.Thread(target=write_twice)
    writer.start()
    assert sysfs.read(bytes(path), 6) == b"onetwo"
    writer.join()


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda path: None, errno.ENOENT),
        (Path.mkdir, errno.EISDIR),
        (lambda path: path.symlink_to(path), errno.ELOOP),
    ],
)
def test_read_errors_name_operation_and_path(
    tmp_path: Path, directory: int, make: Callable[[Path], None], number: int
) -> None:
    path = tmp_path / "attribute"
    make(path)
    with fails(number, "read", path):
        sysfs.read(bytes(path))
    with fails(number, "read", Path("attribute")):
        sysfs.read_at(directory, b"attribute")


def test_errors_are_the_matching_subclass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sysfs.read(bytes(tmp_path / "none"))
    with pytest.raises(IsADirectoryError):
        sysfs.write(bytes(tmp_path), b"x")


def test_a_path_that_is_no_text_survives_in_the_error() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        sysfs.read(b"/nowhere/\xff")
    assert os.fsencode(caught.value.filename) == b"/nowhere/\xff"


def test_zero_byte_never_cuts_a_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    path = bytes(tmp_path / "a") + b"\0b"
    for call in (lambda: sysfs.read(path), lambda: sysfs.write(path, b"y")):
        with pytest.raises(ValueError, match="null"):
            call()
    assert (tmp_path / "a").read_bytes() == b"x"


def test_only_bytes_are_paths() -> None:
    with pytest.raises(TypeError):
        sysfs.read("/proc/self/comm")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sysfs.write(b"/dev/null", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("fd", [-1, -100])
def test_read_at_wants_an_open_directory(fd: int) -> None:
    with fails(errno.EBADF, "read", Path("comm")):
        sysfs.read_at(fd, b"comm")


def test_read_at_borrows_its_directory(tmp_path: Path, directory: int) -> None:
    with fails(errno.ENOENT, "read", Path("none")):
        sysfs.read_at(directory, b"none")
    assert fcntl.fcntl(directory, fcntl.F_GETFD) >= 0


def test_write_stores_in_place(tmp_path: Path) -> None:
    path = tmp_path / "attribute"
    path.write_bytes(b"long before")
    sysfs.write(bytes(path), b"1-2")
    assert path.read_bytes() == b"1-2g before"


def test_write_never_creates(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with fails(errno.ENOENT, "write", path):
        sysfs.write(bytes(path), b"x")
    assert not path.exists()


def test_write_error_of_the_store_itself_is_kept() -> None:
    with fails(errno.ENOSPC, "write", Path("/dev/full")):
        sysfs.write(b"/dev/full", b"x")


def test_short_write_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "attribute"
    path.write_bytes(b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with fails(errno.EIO, "write", path):
            sysfs.write(bytes(path), b"longer than four")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"long"  # one write, and no second one for the rest


def test_store_is_exactly_one_write(tmp_path: Path) -> None:
    path = tmp_path / "attribute"
    path.write_bytes(b"")
    with one_write():
        sysfs.write(bytes(path), b"x" * 65536)


def test_nothing_to_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"kept")
    with pytest.raises(ValueError, match="no data"):
        sysfs.write(bytes(path), b"")
    assert path.read_bytes() == b"kept"
