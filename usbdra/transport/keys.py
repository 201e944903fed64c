# SPDX-License-Identifier: Apache-2.0
"""TLS 1.3 key schedule, as far as the kernel needs it: a traffic secret to record key and IV.

Owns HKDF-Expand-Label (RFC 8446 7.1, 7.3) and the parsing of key log lines. Pure: must not do
I/O. Secrets are `bytes` of the interpreter; they are dropped, not wiped, since Python cannot.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from usbdra.errors import EncryptionUnavailable

AES_128_GCM = 51
"""TLS_CIPHER_AES_GCM_128 of include/uapi/linux/tls.h."""
AES_256_GCM = 52
IV_SIZE = 12
RANDOM_SIZE = 32

_CLIENT_LABEL = b"CLIENT_TRAFFIC_SECRET_0"
_SERVER_LABEL = b"SERVER_TRAFFIC_SECRET_0"


@dataclass(frozen=True, slots=True)
class Suite:
    """A TLS 1.3 cipher suite that kernel TLS can carry on."""

    name: str
    cipher: int
    hash_name: str
    key_size: int


SUITES = {
    suite.name: suite
    for suite in (
        Suite("TLS_AES_128_GCM_SHA256", AES_128_GCM, "sha256", 16),
        Suite("TLS_AES_256_GCM_SHA384", AES_256_GCM, "sha384", 32),
    )
}


@dataclass(frozen=True, slots=True)
class TrafficKeys:
    """Key and 12-byte IV of one direction. Kept out of repr, so that no log ever holds them."""

    cipher: int
    key: bytes = field(repr=False)
    iv: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TrafficSecrets:
    """The first application traffic secret of each direction."""

    client: bytes = field(repr=False)
    server: bytes = field(repr=False)


def suite_named(name: str) -> Suite:
    """The suite OpenSSL calls `name`. Raises EncryptionUnavailable for one without AES-GCM."""
    suite = SUITES.get(name)
    if suite is None:
        raise EncryptionUnavailable(
            f"the peers agreed on {name}, which kernel TLS is not given; allow "
            "TLS_AES_256_GCM_SHA384 or TLS_AES_128_GCM_SHA256 in openssl.cnf (Ciphersuites)"
        )
    return suite


def expand_label(secret: bytes, label: bytes, context: bytes, length: int, hash_name: str) -> bytes:
    """HKDF-Expand-Label(secret, label, context, length) of RFC 8446 7.1; label without `tls13 `."""
    full_label = b"tls13 " + label
    info = b"".join(
        (
            length.to_bytes(2, "big"),
            len(full_label).to_bytes(1, "big"),
            full_label,
            len(context).to_bytes(1, "big"),
            context,
        )
    )
    return _expand(secret, info, length, hash_name)


def _expand(secret: bytes, info: bytes, length: int, hash_name: str) -> bytes:
    """HKDF-Expand of RFC 5869 2.3."""
    rounds = -(-length // hashlib.new(hash_name).digest_size)
    block = output = b""
    for counter in range(1, rounds + 1):
        block = hmac.digest(secret, block + info + bytes((counter,)), hash_name)
        output += block
    return output[:length]


def traffic_keys(secret: bytes, suite: Suite) -> TrafficKeys:
    """Record key and IV of one traffic secret (RFC 8446 7.3)."""
    return TrafficKeys(
        suite.cipher,
        expand_label(secret, b"key", b"", suite.key_size, suite.hash_name),
        expand_label(secret, b"iv", b"", IV_SIZE, suite.hash_name),
    )


class KeyLog:
    """Picks one connection's traffic secrets out of NSS key log text.

    Source: the NSS key log format, `LABEL <client random> <secret>` in hex, a line each. Lines of
    other connections, told by their client random, are passed over.
    """

    def __init__(self) -> None:
        self._lines: list[tuple[bytes, bytes, bytes]] = []

    def add(self, text: bytes | bytearray) -> None:
        """Take what was logged since the last call; only whole lines are ever written."""
        for line in text.splitlines():
            parts = bytes(line).split()
            if len(parts) == 3 and parts[0] in {_CLIENT_LABEL, _SERVER_LABEL}:
                self._lines.append((parts[0], parts[1], parts[2]))

    def secrets(self, client_random: bytes) -> TrafficSecrets:
        """Both secrets of this connection. Raises EncryptionUnavailable when one is missing."""
        wanted = client_random.hex().encode()
        found = {label: secret for label, random, secret in self._lines if random == wanted}
        self._lines.clear()
        try:
            client, server = found[_CLIENT_LABEL], found[_SERVER_LABEL]
        except KeyError as exc:
            raise EncryptionUnavailable(
                f"the TLS library logged no {exc.args[0].decode()} for this connection"
            ) from exc
        return TrafficSecrets(bytes.fromhex(client.decode()), bytes.fromhex(server.decode()))
