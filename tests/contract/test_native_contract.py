# SPDX-License-Identifier: Apache-2.0
"""The native core's promises on fake files; tests/kernel runs the same bodies on real ones."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract import native_bodies
from tests.contract.native_bodies import COMMON, Files, fails, tcp_pair
from tests.fakes.sysfs import SysTree
from usbdra._native import ktls


@pytest.fixture(params=[(1, 8, 8), (8, 15, 15)], ids=["kernel default", "Debian"])
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Files:
    controllers, high, super_ = request.param
    tree = SysTree(tmp_path)
    fake = tree.vhci(controllers=controllers, high=high, super_=super_)
    return Files(fake.path, tree.usbip_host())


@pytest.mark.parametrize("body", COMMON, ids=lambda body: body.__name__)
def test_promise(files: Files, body: Callable[[Files], None]) -> None:
    body(files)


def test_kernel_tls_or_a_clear_no() -> None:
    """Where the kernel has no tls, attach_ulp says ENOENT; where it has, bytes must pass."""
    available = Path("/proc/sys/net/ipv4/tcp_available_ulp").read_text().split()
    if "tls" in available:
        native_bodies.kernel_tls_carries_bytes(native_bodies.REAL)
        native_bodies.kernel_tls_refuses_other_keys(native_bodies.REAL)
        return
    with tcp_pair() as (sock, _), fails(errno.ENOENT, "attach_ulp on fd"):
        ktls.attach_ulp(sock.fileno())
    with socket.socket() as lonely, pytest.raises(OSError, match="attach_ulp"):
        ktls.attach_ulp(lonely.fileno())
