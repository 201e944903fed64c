# SPDX-License-Identifier: Apache-2.0
"""usbip-host's files: the exact text of each store, where it goes, what is refused before it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit._native.failures import fails, one_write
from usbdra._native import stub

FILES = ("match_busid", "bind", "unbind", "rebind", "usbip_sockfd", "usbip_status")
STORES: dict[str, tuple[Callable[[bytes], None], str, bytes]] = {
    "match_add": (lambda d: stub.match_add(d, b"1-1.4"), "match_busid", b"add 1-1.4"),
    "match_del": (lambda d: stub.match_del(d, b"1-1.4"), "match_busid", b"del 1-1.4"),
    "bind": (lambda d: stub.bind(d, b"1-1.4"), "bind", b"1-1.4"),
    "unbind": (lambda d: stub.unbind(d, b"1-1.4:1.0"), "unbind", b"1-1.4:1.0"),
    "rebind": (lambda d: stub.rebind(d, b"1-1.4"), "rebind", b"1-1.4"),
    "hand_over": (lambda d: stub.hand_over(d, 17), "usbip_sockfd", b"17"),
    "end_session": (stub.end_session, "usbip_sockfd", b"-1"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("operation", STORES)
def test_one_write_of_the_exact_text_without_line_feed(directory: Path, operation: str) -> None:
    store, name, text = STORES[operation]
    with one_write():
        store(bytes(directory))
    stored = {n: (directory / n).read_bytes() for n in FILES}
    assert stored == dict.fromkeys(FILES, b"") | {name: text}


@pytest.mark.parametrize("operation", STORES)
def test_kernel_error_is_kept_with_operation_and_path(tmp_path: Path, operation: str) -> None:
    store, name, _ = STORES[operation]
    with fails(errno.ENOENT, operation, tmp_path / name):
        store(bytes(tmp_path))
    (tmp_path / name).symlink_to("/dev/full")
    with fails(errno.ENOSPC, operation, tmp_path / name):
        store(bytes(tmp_path))


@pytest.mark.parametrize(
    "busid", [b"", b"1-1\n", b"1-1 ", b"../bind", b"1-1\0", b"usb1", b"1-" + b"1" * 30]
)
@pytest.mark.parametrize("call", [stub.match_add, stub.match_del, stub.bind, stub.unbind])
def test_only_names_of_the_kernel_reach_its_files(
    directory: Path, call: Callable[[bytes, bytes], None], busid: bytes
) -> None:
    with pytest.raises(ValueError, match="not a USB device"):
        call(bytes(directory), busid)
    assert all((directory / name).read_bytes() == b"" for name in FILES)


def test_busid_of_31_letters_is_the_longest(directory: Path) -> None:
    stub.bind(bytes(directory), b"1-" + b"1" * 29)
    assert len((directory / "bind").read_bytes()) == 31


def test_hand_over_never_ends_a_session_by_accident(directory: Path) -> None:
    with fails(errno.EBADF, "hand_over", directory / "usbip_sockfd"):
        stub.hand_over(bytes(directory), -1)
    assert (directory / "usbip_sockfd").read_bytes() == b""


def test_hand_over_borrows_the_descriptor(directory: Path) -> None:
    fd = os.open("/dev/null", os.O_RDONLY)
    stub.hand_over(bytes(directory), fd)
    os.close(fd)  # raises if it were closed already
    assert (directory / "usbip_sockfd").read_bytes() == b"%d" % fd


@pytest.mark.parametrize("value", [1, 2, 3])
def test_r11_status_is_a_number(directory: Path, value: int) -> None:
    (directory / "usbip_status").write_bytes(b"%d\n" % value)
    assert stub.status(bytes(directory)) == value


@pytest.mark.parametrize("text", [b"", b"\n", b"-1\n", b"one\n", b"1 2\n"])
def test_status_that_is_no_number(directory: Path, text: bytes) -> None:
    (directory / "usbip_status").write_bytes(text)
    with pytest.raises(ValueError, match="usbip_status holds"):
        stub.status(bytes(directory))


def test_status_errors(directory: Path) -> None:
    path = directory / "usbip_status"
    path.write_bytes(b"1" * 16)
    with fails(errno.EFBIG, "status", path):
        stub.status(bytes(directory))
    path.unlink()
    with fails(errno.ENOENT, "status", path):
        stub.status(bytes(directory))
