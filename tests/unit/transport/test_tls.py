# SPDX-License-Identifier: Apache-2.0
"""Identities from files, their rotation, and the names in certificates."""

from __future__ import annotations

import logging
import shutil
import ssl
from pathlib import Path

import pytest

from tests.fakes.certificates import certificates
from usbdra.errors import ConfigError, NotAuthenticated
from usbdra.transport.ktls import Role
from usbdra.transport.tls import Identity, LateIdentity, TlsFiles, peer_certificate

URI = "usbdra://node/"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(certificates().a, tmp_path / "a"))


def test_contexts_are_strict(directory: Path) -> None:
    identity = Identity(TlsFiles.in_directory(directory))
    for role in Role:
        context = identity.context(role).ssl
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.verify_flags & ssl.VERIFY_X509_STRICT
        assert len(context.get_ca_certs()) == 1
    assert identity.context(Role.SERVER).ssl.num_tickets == 0
    assert identity.context(Role.SERVER) is identity.context(Role.SERVER)


def test_rotation_is_picked_up_by_the_next_connection(directory: Path) -> None:
    identity = Identity(TlsFiles.in_directory(directory))
    before = identity.context(Role.CLIENT)
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (directory / name).write_bytes((certificates().stranger / name).read_bytes())
    after = identity.context(Role.CLIENT)
    assert after is not before
    assert identity.context(Role.CLIENT) is after


def test_a_late_identity_is_read_once_and_not_before_it_is_there(tmp_path: Path) -> None:
    """Each reading makes contexts that hold memory until Python collects them."""
    identity = LateIdentity(lambda: TlsFiles.in_directory(tmp_path / "current"))
    with pytest.raises(ConfigError, match=r"current/tls\.crt"):
        identity()
    (tmp_path / "current").symlink_to(certificates().a)
    assert identity() is identity()


def test_half_a_rotation_keeps_the_old_identity(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity(TlsFiles.in_directory(directory))
    before = identity.context(Role.SERVER)
    with caplog.at_level(logging.WARNING, "usbdra"):
        (directory / "tls.crt").write_bytes((certificates().b / "tls.crt").read_bytes())
        assert identity.context(Role.SERVER) is before
        (directory / "tls.key").unlink()
        assert identity.context(Role.SERVER) is before
    assert "keeping the previous certificate" in caplog.text
    assert "key values mismatch" in caplog.text
    (directory / "tls.key").write_bytes((certificates().b / "tls.key").read_bytes())
    assert identity.context(Role.SERVER) is not before


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("tls.crt", None, r"cannot use .*tls\.crt: No such file"),
        ("tls.crt", b"hello", r"cannot use .*tls\.crt with .*tls\.key"),
        ("tls.key", b"hello", r"cannot use .*tls\.crt with .*tls\.key"),
        ("ca.crt", b"hello", r"cannot use .*ca\.crt"),
    ],
)
def test_unusable_files_are_named(
    directory: Path, name: str, content: bytes | None, text: str
) -> None:
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(content)
    with pytest.raises(ConfigError, match=text):
        Identity(TlsFiles.in_directory(directory))


def test_encrypted_key_is_refused_without_asking(directory: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((directory / "tls.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (directory / "tls.key").write_bytes(locked)
    with pytest.raises(ConfigError, match="the key is encrypted"):
        Identity(TlsFiles.in_directory(directory))


def test_names_in_a_certificate() -> None:
    peer = peer_certificate(
        {
            "subjectAltName": (
                ("URI", "spiffe://other"),
                ("URI", URI + "node-a"),
                ("DNS", "A.example"),
                ("IP Address", "10.0.0.5"),
                ("IP Address", "FD00:0:0:0:0:0:0:2\n"),
            ),
            "serialNumber": "0A",
            "notAfter": "Mar  1 12:00:00 2027 GMT",
        }
    )
    assert (peer.node, peer.serial) == ("node-a", "0A")
    for good in ("node-a", "Node-A.", "a.example", "10.0.0.5", "fd00::2", "fd00:0::2%eth0"):
        assert peer.names(good)
    for bad in ("node-b", "10.0.0.6", "example", "", "*.example", "spiffe://other"):
        assert not peer.names(bad)


@pytest.mark.parametrize(
    ("uris", "text"),
    [
        ((), "names 0 nodes"),
        ((URI + "a", URI + "b"), "names 2 nodes"),
        ((URI + "a/b",), "malformed node 'a/b'"),
        ((URI,), "malformed node ''"),
    ],
)
def test_exactly_one_node(uris: tuple[str, ...], text: str) -> None:
    with pytest.raises(NotAuthenticated, match=text):
        peer_certificate({"subjectAltName": tuple(("URI", uri) for uri in uris)})


@pytest.mark.parametrize("name", ["outside/node-a", "cluster/controller"])
def test_who_is_no_node_passes_under_its_own_name_alone(name: str) -> None:
    more = (("DNS", "node-a"), ("IP Address", "10.0.0.5"))
    peer = peer_certificate({"subjectAltName": (("URI", URI + name), *more)})
    assert peer.node == name
    assert peer.names(name)
    for other in ("node-a", "10.0.0.5", "outside/node-b"):
        assert not peer.names(other)


@pytest.mark.parametrize("name", ["outside/", "outside/a/b", "cluster/other", "outside//a"])
def test_other_names_with_a_slash_are_nobodys(name: str) -> None:
    with pytest.raises(NotAuthenticated, match="malformed node"):
        peer_certificate({"subjectAltName": (("URI", URI + name),)})


def test_no_certificate() -> None:
    with pytest.raises(NotAuthenticated, match="names 0 nodes"):
        peer_certificate(None)


def test_the_uid_of_the_node_object_is_read_where_there_is_one() -> None:
    names = (("URI", "usbdra://node/node-a"),)
    subject = ((("commonName", "node-a"),), (("serialNumber", "uid-1"),))
    assert peer_certificate({"subject": subject, "subjectAltName": names}).node_uid == "uid-1"
    assert peer_certificate({"subject": subject[:1], "subjectAltName": names}).node_uid == ""
