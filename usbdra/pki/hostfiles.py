# SPDX-License-Identifier: Apache-2.0
"""A host outside the cluster and its certificate: the key is made here and stays here.

Owns the two steps on the host: a request for the cluster to sign, and taking in what was signed.
Must not talk to anybody.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from usbdra.errors import ConfigError
from usbdra.pki import authority, files, trust
from usbdra.pki.authority import Pair, new_key
from usbdra.pki.request import make_peer_request
from usbdra.types import outside_host, outside_node


def request(directory: Path, host: str) -> bytes:
    """The PEM of a request for the certificate of `host`; its key is made if there is none.

    A key that is there is kept: a certificate that is renewed goes on until the next is there.
    Raises ConfigError naming the file that cannot be used.
    """
    path = directory / files.NODE_KEY
    if not path.exists():
        files.make_directory(directory)
        pem = authority.key_pem(new_key())
        try:
            files.write_file(path, pem, 0o600, replace=False)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    key = authority.read_key(files.read_pem(path), str(path))
    return make_peer_request(key, outside_node(host))


def accept(directory: Path, bundle: bytes, now: datetime, what: str) -> Path:
    """Take in what the cluster answered: the certificate, then the CAs; its path.

    Raises ConfigError for what is no certificate of this directory's key and of these CAs, or no
    host's; then nothing is changed.
    """
    found = authority.read_certificates(bundle, what)
    cert, cas = found[0], found[1:]
    key_path = directory / files.NODE_KEY
    key = authority.read_key(files.read_pem(key_path), str(key_path))
    if key.public_key() != cert.public_key():
        raise ConfigError(f"{what} is not for the key {key_path}; ask with `usbdra pki request`")
    if not trust.holds(cert, cas, now):
        raise ConfigError(f"{what} does not hold the CA that signed its certificate")
    if outside_host(authority.peer_of(cert)) is None:
        raise ConfigError(f"{what} is no certificate of a host outside a cluster")
    pair = Pair(cert, key)
    for name, data in (
        (files.CA_CERT, trust.write_bundle(cas)),
        (files.NODE_CERT, pair.cert_pem()),
    ):
        try:
            files.write_file(directory / name, data, 0o644, replace=True)
        except OSError as error:
            raise ConfigError(f"cannot write {directory / name}: {error.strerror}") from error
    return directory / files.NODE_CERT
