# SPDX-License-Identifier: Apache-2.0
"""The key schedule against RFC 8448 section 3, and key log parsing."""

from __future__ import annotations

import pytest

from usbdra.errors import EncryptionUnavailable
from usbdra.transport.keys import (
    AES_128_GCM,
    SUITES,
    KeyLog,
    TrafficKeys,
    TrafficSecrets,
    expand_label,
    suite_named,
    traffic_keys,
)

AES_128 = SUITES["TLS_AES_128_GCM_SHA256"]

# RFC 8448 section 3, simple 1-RTT handshake: application traffic.
CLIENT_SECRET = bytes.fromhex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5")
CLIENT_KEY = "17422dda596ed5d9acd890e3c63f5051"
CLIENT_IV = "5b78923dee08579033e523d9"
SERVER_SECRET = bytes.fromhex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643")
SERVER_KEY = "9f02283b6c9c07efc26bb9f2ac92e356"
SERVER_IV = "cf782b88dd83549aadf1e984"


@pytest.mark.parametrize(
    ("secret", "key", "iv"),
    [(CLIENT_SECRET, CLIENT_KEY, CLIENT_IV), (SERVER_SECRET, SERVER_KEY, SERVER_IV)],
    ids=["client", "server"],
)
def test_traffic_keys_of_rfc_8448(secret: bytes, key: str, iv: str) -> None:
    keys = traffic_keys(secret, AES_128)
    assert (keys.cipher, keys.key.hex(), keys.iv.hex()) == (AES_128_GCM, key, iv)


def test_expand_label_derived_of_rfc_8448() -> None:
    """`derived` of the early secret: a label with a context (the hash of nothing)."""
    early = bytes.fromhex("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a")
    empty = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    derived = "6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"
    assert expand_label(early, b"derived", empty, 32, "sha256").hex() == derived


def test_expand_label_over_several_blocks() -> None:
    long = expand_label(CLIENT_SECRET, b"key", b"", 100, "sha256")
    assert len(long) == 100


def test_aes_256_takes_the_longer_hash() -> None:
    keys = traffic_keys(bytes(48), SUITES["TLS_AES_256_GCM_SHA384"])
    assert (keys.cipher, len(keys.key), len(keys.iv)) == (52, 32, 12)


def test_other_suites_are_named() -> None:
    with pytest.raises(EncryptionUnavailable, match="TLS_CHACHA20_POLY1305_SHA256"):
        suite_named("TLS_CHACHA20_POLY1305_SHA256")


def test_keys_stay_out_of_texts() -> None:
    keys = TrafficKeys(AES_128_GCM, b"secret key", b"secret iv")
    secrets = TrafficSecrets(b"secret c", b"secret s")
    assert "secret k" not in repr(keys)
    assert "secret c" not in repr(secrets)


def line(label: str, random: bytes, secret: bytes) -> bytes:
    return f"{label} {random.hex()} {secret.hex()}\n".encode()


def test_key_log_picks_its_connection() -> None:
    ours, theirs = bytes(32), bytes([1] * 32)
    log = KeyLog()
    log.add(b"# TLS secrets log file\nCLIENT_RANDOM short\n")
    log.add(line("SERVER_TRAFFIC_SECRET_0", theirs, b"x"))
    log.add(line("CLIENT_TRAFFIC_SECRET_0", ours, b"c") + line("EXPORTER_SECRET", ours, b"e"))
    log.add(bytearray(line("SERVER_TRAFFIC_SECRET_0", ours, b"s")))
    assert log.secrets(ours) == TrafficSecrets(b"c", b"s")
    with pytest.raises(EncryptionUnavailable, match="logged no CLIENT_TRAFFIC_SECRET_0"):
        log.secrets(ours)  # they are handed out once
