# SPDX-License-Identifier: Apache-2.0
"""Kernel TLS options on real TCP sockets: what is refused here, what the kernel answers.

Whether bytes are encrypted is tested in tests/contract and in the kernel bed, where a tls module
is at hand.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from tests.unit._native.failures import fails_on_fd
from usbdra._native import ktls


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def tcp(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    address = "::1" if request.param == socket.AF_INET6 else "127.0.0.1"
    with socket.create_server((address, 0), family=request.param) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, _ = server.accept()
        with client, accepted:
            yield client


def test_constants_are_those_of_linux_tls_h() -> None:
    assert (ktls.TX, ktls.RX, ktls.AES_128_GCM, ktls.AES_256_GCM) == (1, 2, 51, 52)


def test_plain_tcp_has_no_cipher(tcp: socket.socket) -> None:
    assert ktls.cipher_in_use(tcp.fileno(), ktls.TX) == 0
    assert ktls.cipher_in_use(tcp.fileno(), ktls.RX) == 0


def test_keys_without_the_protocol_are_refused_by_the_kernel(tcp: socket.socket) -> None:
    with fails_on_fd(errno.ENOPROTOOPT, "set_keys", tcp.fileno()):
        ktls.set_keys(tcp.fileno(), ktls.TX, ktls.AES_128_GCM, bytes(16), bytes(12))


def test_attach_ulp_on_what_is_no_connection(tcp: socket.socket) -> None:
    reader, writer = os.pipe()
    try:
        with fails_on_fd(errno.ENOTSOCK, "attach_ulp", reader):
            ktls.attach_ulp(reader)
    finally:
        os.close(reader)
        os.close(writer)
    with fails_on_fd(errno.EBADF, "attach_ulp", -1):
        ktls.attach_ulp(-1)
    with fails_on_fd(errno.EBADF, "cipher_in_use", -1):
        ktls.cipher_in_use(-1, ktls.TX)


@pytest.mark.parametrize(
    ("direction", "cipher", "key", "iv", "match"),
    [
        (0, 51, 16, 12, "direction 0"),
        (3, 51, 16, 12, "direction 3"),
        (1, 50, 16, 12, "cipher 50"),
        (1, 51, 32, 12, "key has 32 bytes"),
        (1, 52, 16, 12, "key has 16 bytes"),
        (1, 51, 0, 12, "key has 0 bytes"),
        (2, 52, 32, 8, "iv has 8 bytes"),
        (2, 52, 32, 13, "iv has 13 bytes"),
    ],
)
def test_wrong_sizes_never_reach_the_kernel(
    tcp: socket.socket, direction: int, cipher: int, key: int, iv: int, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        ktls.set_keys(tcp.fileno(), direction, cipher, bytes(key), bytes(iv))


def test_errors_do_not_show_the_key(tcp: socket.socket) -> None:
    key = b"sixteen secrets!"
    with pytest.raises(OSError, match="set_keys") as caught:
        ktls.set_keys(tcp.fileno(), ktls.TX, ktls.AES_128_GCM, key, bytes(12))
    assert "secrets" not in repr(caught.value)


def test_record_number_is_64_bits(tcp: socket.socket) -> None:
    for number in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            ktls.set_keys(tcp.fileno(), ktls.TX, ktls.AES_128_GCM, bytes(16), bytes(12), number)


def test_direction_of_a_question(tcp: socket.socket) -> None:
    with pytest.raises(ValueError, match="direction 3"):
        ktls.cipher_in_use(tcp.fileno(), 3)
