# SPDX-License-Identifier: Apache-2.0
TX: int
RX: int
AES_128_GCM: int
AES_256_GCM: int

def attach_ulp(sock: int, /) -> None:
    """setsockopt(TCP_ULP, "tls"). Borrows sock. ENOENT: the kernel has no tls module loaded."""

def set_keys(
    sock: int, direction: int, cipher: int, key: bytes, iv: bytes, rec_seq: int = 0, /
) -> None:
    """Give TLS 1.3 keys for one direction to the kernel (include/uapi/linux/tls.h).

    key: 16 or 32 bytes by cipher; iv: the 12-byte record IV; the crypto info is wiped after use.
    """

def cipher_in_use(sock: int, direction: int, /) -> int:
    """The cipher the kernel holds for this direction (getsockopt), 0 when none is set."""
