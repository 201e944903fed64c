# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from usbdra.errors import ConfigError, Refused
from usbdra.pki import hostfiles, trust
from usbdra.pki.authority import Pair, make_authority, new_key, peer_of, sign_node, sign_peer
from usbdra.pki.grants import Grant, parse_grant
from usbdra.pki.request import make_peer_request, make_request, read_peer_request
from usbdra.transport.ktls import Role
from usbdra.transport.tls import Identity, TlsFiles

NOW = datetime.now(UTC)
CA = make_authority("usbdra CA", NOW)
DAY = timedelta(days=1)


def answer(pem: bytes, ca: Pair = CA, *believed: Pair) -> bytes:
    request = read_peer_request(pem)
    cert = sign_peer(ca, request.peer, request.public_key, NOW, DAY)
    return trust.write_bundle([cert, *(one.cert for one in believed or (ca,))])


def test_a_hosts_key_is_made_once_and_its_certificate_serves(tmp_path: Path) -> None:
    pem = hostfiles.request(tmp_path / "pki", "pi")
    assert read_peer_request(pem).peer == "outside/pi"
    key = tmp_path / "pki" / "tls.key"
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    path = hostfiles.accept(tmp_path / "pki", answer(pem), NOW, "pi.pem")
    assert path == tmp_path / "pki" / "tls.crt"
    identity = Identity(TlsFiles.in_directory(tmp_path / "pki"))
    assert identity.context(Role.SERVER) is not None
    # renewed: the same key, two CAs
    other = make_authority("usbdra CA", NOW)
    again = hostfiles.request(tmp_path / "pki", "pi")
    hostfiles.accept(tmp_path / "pki", answer(again, other, CA, other), NOW, "pi.pem")
    assert key.read_bytes() == before
    assert (tmp_path / "pki" / "ca.crt").read_bytes().count(b"BEGIN") == 2


def test_what_is_not_the_hosts_own_changes_nothing(tmp_path: Path) -> None:
    pem = hostfiles.request(tmp_path, "pi")
    key = new_key()
    stranger = make_authority("usbdra CA", NOW)
    node = sign_node(CA, "node-a", (), read_peer_request(pem).public_key, NOW, DAY)
    for bundle, text in (
        (answer(make_peer_request(key, "outside/pi")), "is not for the key"),
        (answer(pem, stranger, CA), "does not hold the CA that signed"),
        (trust.write_bundle([node, CA.cert]), "no certificate of a host outside"),
        (b"nonsense", "not a certificate in PEM form"),
    ):
        with pytest.raises(ConfigError, match=text):
            hostfiles.accept(tmp_path, bundle, NOW, "pi.pem")
    assert [one.name for one in tmp_path.iterdir()] == ["tls.key"]


def test_a_peers_request_asks_for_its_name_and_nothing_by_which_it_passes_as_another() -> None:
    key = new_key()
    grant = Grant("pi", "stick", "lab", "one", "uid-1").uri()
    found = read_peer_request(make_peer_request(key, "node-b", "uid", (grant,)))
    assert (found.peer, found.uid, found.uris) == ("node-b", "uid", (grant,))
    with pytest.raises(Refused, match="has other names"):
        read_peer_request(make_request(key, "node-b", "uid", ["10.0.0.5"]))
    with pytest.raises(Refused, match="no single URI name"):
        read_peer_request(make_peer_request(key, "node-b", "uid", ("usbdra://node/node-a",)))
    cert = sign_peer(CA, "outside/pi", key.public_key(), NOW, DAY)
    assert peer_of(cert) == "outside/pi"
    assert peer_of(CA.cert) == ""


@pytest.mark.parametrize(
    "path",
    ["pi/stick/lab/one", "pi/stick/lab/one/u/more", "pi/Stick/lab/one/u", "//lab/one/u", "",
     "pi/stick/lab/one/u\n"],
)  # fmt: skip
def test_what_is_no_grant_is_none(path: str) -> None:
    assert parse_grant(f"usbdra-grant://node/{path}") is None
    assert parse_grant("usbdra://node/pi/stick/lab/one/u") is None
    whole = Grant("pi", "stick", "lab", "one.two", "u-1")
    assert parse_grant(whole.uri()) == whole
