# SPDX-License-Identifier: Apache-2.0
"""vhci_hcd's files: reading the table of all controllers, the texts of attach and detach."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit._native.failures import fails, one_write
from tests.unit._native.texts import S1, S1_ROWS, S3_NOT_READY, controllers
from usbdra._native import vhci


def store_texts(directory: Path, texts: list[bytes]) -> bytes:
    for number, text in enumerate(texts):
        (directory / ("status" if number == 0 else f"status.{number}")).write_bytes(text)
    return bytes(directory)


def test_r01_reads_every_controller_in_number_zero(tmp_path: Path) -> None:
    texts = controllers(11, 8, 8)
    directory = store_texts(tmp_path, texts)
    assert list(vhci.read_status(directory, 11)) == list(vhci.parse(texts))
    assert len(vhci.read_status(directory, 2)) == 32


def test_one_controller(tmp_path: Path) -> None:
    assert list(vhci.read_status(store_texts(tmp_path, [S1]), 1)) == S1_ROWS


def test_table_outlives_what_it_was_read_from(tmp_path: Path) -> None:
    table = vhci.read_status(store_texts(tmp_path, [S1]), 1)
    store_texts(tmp_path, [S3_NOT_READY])
    assert list(table) == S1_ROWS


def test_r68_missing_file_is_named(tmp_path: Path) -> None:
    directory = store_texts(tmp_path, controllers(2, 8, 8))
    with fails(errno.ENOENT, "read_status", tmp_path / "status.2"):
        vhci.read_status(directory, 3)
    with fails(errno.ENOENT, "read_status", tmp_path / "none/status"):
        vhci.read_status(directory + b"/none", 1)


def test_other_read_errors(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    with fails(errno.EISDIR, "read_status", tmp_path / "status"):
        vhci.read_status(bytes(tmp_path), 1)


def test_text_larger_than_any_page(tmp_path: Path) -> None:
    directory = store_texts(tmp_path, [S1 + b" " * 65536])
    with fails(errno.EFBIG, "read_status", tmp_path / "status"):
        vhci.read_status(directory, 1)


def test_path_too_long() -> None:
    with pytest.raises(OSError, match="read_status: File name too long") as caught:
        vhci.read_status(b"/" + b"x" * 4090, 1)
    assert caught.value.errno == errno.ENAMETOOLONG


def test_zero_byte_in_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="null"):
        vhci.read_status(store_texts(tmp_path, [S1]) + b"\0", 1)


@pytest.mark.parametrize("count", [0, -1, 129])
def test_count_of_controllers(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match="count"):
        vhci.read_status(bytes(tmp_path), count)


def test_r02_bad_text_names_its_controller(tmp_path: Path) -> None:
    directory = store_texts(tmp_path, [S1, b"what is this\n"])
    with pytest.raises(vhci.StatusFormatError, match="controller 1: unknown header") as caught:
        vhci.read_status(directory, 2)
    assert caught.value.header == "what is this"


def test_attach_is_one_write_of_decimal_numbers(tmp_path: Path) -> None:
    (tmp_path / "attach").write_bytes(b"")
    with one_write():
        vhci.attach(bytes(tmp_path), 8, 7, 3 << 16 | 7, 5)
    assert (tmp_path / "attach").read_bytes() == b"8 7 196615 5"


def test_attach_takes_the_whole_unsigned_range(tmp_path: Path) -> None:
    (tmp_path / "attach").write_bytes(b"")
    vhci.attach(bytes(tmp_path), 0, 0, 0xFFFFFFFF, 6)
    assert (tmp_path / "attach").read_bytes() == b"0 0 4294967295 6"


def test_attach_refuses_what_the_kernel_would_misread(tmp_path: Path) -> None:
    (tmp_path / "attach").write_bytes(b"")
    directory = bytes(tmp_path)
    with fails(errno.EBADF, "attach", tmp_path / "attach"):
        vhci.attach(directory, 0, -1, 1, 3)
    for port, devid, speed in ((-1, 1, 3), (0, -1, 3), (0, 1, -1), (0, 1 << 32, 3)):
        with pytest.raises(OverflowError):
            vhci.attach(directory, port, 5, devid, speed)
    assert (tmp_path / "attach").read_bytes() == b""


def test_attach_borrows_the_descriptor(tmp_path: Path) -> None:
    (tmp_path / "attach").write_bytes(b"")
    fd = os.open("/dev/null", os.O_RDONLY)
    vhci.attach(bytes(tmp_path), 0, fd, 1, 3)
    os.close(fd)  # raises if it were closed already


def test_detach_is_one_write_of_the_port(tmp_path: Path) -> None:
    (tmp_path / "detach").write_bytes(b"")
    with one_write():
        vhci.detach(bytes(tmp_path), 239)
    assert (tmp_path / "detach").read_bytes() == b"239"


def test_store_errors(tmp_path: Path) -> None:
    with fails(errno.ENOENT, "attach", tmp_path / "attach"):
        vhci.attach(bytes(tmp_path), 0, 5, 1, 3)
    with fails(errno.ENOENT, "detach", tmp_path / "detach"):
        vhci.detach(bytes(tmp_path), 0)
    (tmp_path / "attach").symlink_to("/dev/full")
    with fails(errno.ENOSPC, "attach", tmp_path / "attach"):
        vhci.attach(bytes(tmp_path), 0, 5, 1, 3)
