# SPDX-License-Identifier: Apache-2.0
"""bpf(2) calls: what is refused before the kernel sees it, and its answers with their names.

Programs are loaded and swapped in the kernel bed (tests/kernel/test_containers.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from usbdra._native import bpf


@pytest.mark.parametrize("text", [b"", b"\x95" * 7, bytes((1 << 19) + 8)])
def test_what_is_no_program(text: bytes) -> None:
    with pytest.raises(ValueError, match=rf"a program of {len(text)} bytes"):
        bpf.load(text)


def answer(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(OSError) as caught:  # noqa: PT011 the number is the answer
        call()
    return caught.value.errno or 0, caught.value.strerror or ""


def test_descriptors_that_are_none(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        calls = {
            f"device_programs on fd {fd}": (lambda: bpf.device_programs(fd), errno.EBADF),
            f"instructions on fd {fd}": (lambda: bpf.instructions(fd), errno.EINVAL),
            "device_programs on fd -1": (lambda: bpf.device_programs(-1), errno.EBADF),
            "open_program 4294967295": (lambda: bpf.open_program(2**32 - 1), errno.ENOENT),
            "attach on fd -1": (lambda: bpf.attach(-1, -1), errno.EBADF),
        }
        for place, (call, number) in calls.items():
            found, text = answer(call)
            # Who may not ask at all is told so before anything is looked at.
            assert found in (number, errno.EPERM), text
            assert text == f"{place}: {os.strerror(found)}"
    finally:
        os.close(fd)


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(OverflowError):
        bpf.open_program(2**32)
    with pytest.raises(TypeError):
        bpf.load(None)  # type: ignore[arg-type]


def test_a_program_that_the_verifier_refuses_says_why() -> None:
    number, text = answer(lambda: bpf.load(b"\x95" + bytes(7)))  # exit without a result
    if number == errno.EPERM:
        assert text == "load: Operation not permitted: no word of why"
    else:
        assert number == errno.EACCES
        assert "R0 !read_ok" in text
    assert "\n" not in text
