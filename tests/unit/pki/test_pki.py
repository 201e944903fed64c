# SPDX-License-Identifier: Apache-2.0
"""CA and node certificates: what they say, where they go, what is never overwritten."""

from __future__ import annotations

import contextlib
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from usbdra.errors import ConfigError
from usbdra.pki import authority, commands, files

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "pki"
    commands.init(path, now=NOW)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_authority(directory: Path) -> None:
    cert = load(directory / "ca.crt")
    basic = cert.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = cert.extensions.get_extension_for_class(x509.KeyUsage)
    names = cert.extensions.get_extension_for_class(x509.NameConstraints)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    assert (usage.value.key_cert_sign, usage.value.crl_sign) == (True, True)
    assert not usage.value.digital_signature
    assert names.value.permitted_subtrees == [x509.UniformResourceIdentifier("node")]
    assert (cert.not_valid_after_utc - NOW).days == 3650
    assert (mode(directory), mode(directory / "ca.key"), mode(directory / "ca.crt")) == (
        0o700,
        0o600,
        0o644,
    )


def test_node_certificate(directory: Path) -> None:
    summary = commands.issue(directory, "node-a", hosts=["10.0.0.5", "A.example", "::1"], now=NOW)
    assert summary.path == directory / "nodes" / "node-a" / "tls.crt"
    assert (summary.node, summary.is_ca) == ("node-a", False)
    assert summary.hosts == ("node-a", "a.example", "10.0.0.5", "::1")
    assert summary.days_left(NOW) == 825
    cert = load(summary.path)
    usages = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    folder = summary.path.parent
    assert sorted(one.name for one in folder.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert (mode(folder), mode(folder / "tls.key")) == (0o700, 0o600)
    assert (folder / "ca.crt").read_bytes() == (directory / "ca.crt").read_bytes()


def handshake(server: Path, client: Path) -> None:
    """A mutual TLS handshake in memory between two nodes' directories."""
    ends = []
    pipes = (ssl.MemoryBIO(), ssl.MemoryBIO())
    for role, folder in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        context = ssl.SSLContext(role)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.load_verify_locations(folder / "ca.crt")
        is_server = role is ssl.PROTOCOL_TLS_SERVER
        incoming, outgoing = pipes if is_server else pipes[::-1]
        ends.append(context.wrap_bio(incoming, outgoing, server_side=is_server))
    for end in (*reversed(ends), *ends[::-1], ends[0]):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert all(end.getpeercert() for end in ends)


def test_chain_serves_and_dials_under_strict_rules(tmp_path: Path) -> None:
    commands.init(tmp_path)
    a, b = (commands.issue(tmp_path, name).path.parent for name in ("node-a", "node-b"))
    handshake(a, b)


def test_authority_cannot_name_what_is_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.init(tmp_path)
    a = commands.issue(tmp_path, "node-a").path.parent
    monkeypatch.setattr(authority, "NODE_URI_PREFIX", "spiffe://cluster/")
    stolen = commands.issue(tmp_path, "node-b").path.parent
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        handshake(stolen, a)


def test_nothing_is_overwritten_unless_told(directory: Path) -> None:
    key = (directory / "ca.key").read_bytes()
    with pytest.raises(ConfigError, match=r"there already is .*ca\.key and .*ca\.crt"):
        commands.init(directory, now=NOW)
    commands.issue(directory, "node-a", now=NOW)
    with pytest.raises(ConfigError, match=r"there already is .*tls\.key"):
        commands.issue(directory, "node-a", now=NOW)
    assert (directory / "ca.key").read_bytes() == key
    commands.issue(directory, "node-a", now=NOW, force=True)
    commands.init(directory, now=NOW, force=True)
    assert (directory / "ca.key").read_bytes() != key
    assert [one.name for one in directory.rglob(".*")] == []  # no temporary left


def test_node_never_outlives_its_authority(tmp_path: Path) -> None:
    commands.init(tmp_path, days=30, now=NOW)
    summary = commands.issue(tmp_path, "node-a", days=365, now=NOW)
    assert summary.not_after <= NOW + timedelta(days=30)
    with pytest.raises(ConfigError, match="the CA has expired"):
        commands.issue(tmp_path, "node-b", now=NOW + timedelta(days=31))


@pytest.mark.parametrize("name", ["Node", "a/b", "..", "", "a b", "-a", "x" * 254])
def test_malformed_names_make_no_files(directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a node name"):
        commands.issue(directory, name, now=NOW)
    assert not (directory / "nodes").exists()


def test_malformed_host(directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"'10\.0\.0\.0/8' is neither a host name nor an address"):
        commands.issue(directory, "node-a", hosts=["10.0.0.0/8"], now=NOW)


def test_show(directory: Path) -> None:
    commands.issue(directory, "node-b", now=NOW)
    commands.issue(directory, "node-a", days=10, now=NOW)
    ca, a, b = commands.show(directory)
    assert (ca.is_ca, ca.subject) == (True, "CN=usbdra CA")
    assert (a.node, b.node) == ("node-a", "node-b")
    assert a.days_left(NOW + timedelta(days=11)) == -1
    assert [one.path.name for one in commands.show(a.path.parent)] == ["ca.crt", "tls.crt"]
    assert commands.show(a.path) == [a]
    assert len(a.fingerprint) == 64


def test_what_cannot_be_used_is_named(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no certificate in .*pki init"):
        commands.show(tmp_path / "pki" / "..")
    with pytest.raises(ConfigError, match=r"there is no .*none/ca\.crt; `usbdra pki init`"):
        commands.issue(tmp_path / "none", "node-a")
    bad = tmp_path / "bad.crt"
    bad.write_text("hello")
    with pytest.raises(ConfigError, match=r"bad\.crt: not a certificate in PEM form"):
        commands.show(bad)
    commands.init(tmp_path / "other", now=NOW)
    (directory / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match=r"ca\.key is not the key of .*ca\.crt"):
        files.read_authority(directory)
    (directory / "ca.key").write_text("no key")
    with pytest.raises(ConfigError, match=r"ca\.key: not an unencrypted key"):
        files.read_authority(directory)
    bad.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(ConfigError, match="too large"):
        files.read_pem(bad)
