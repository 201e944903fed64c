# SPDX-License-Identifier: Apache-2.0
"""Where certificates of a host without a cluster are kept, and how they get there.

Owns the layout and modes: directories 0700, keys 0600, certificates 0644; each file appears
whole or not at all, and none is replaced unless told so. Must not decide what a certificate says.

    <dir>/ca.crt, <dir>/ca.key                     the CA, on one machine only
    <dir>/nodes/<name>/tls.crt, tls.key, ca.crt    what machine <name> needs, to be copied there
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from usbdra.errors import ConfigError
from usbdra.pki.authority import Pair, read_pair

CA_CERT = "ca.crt"
CA_KEY = "ca.key"
NODE_CERT = "tls.crt"
NODE_KEY = "tls.key"
NODES = "nodes"

_MAX_PEM = 1 << 20


def write_authority(directory: Path, authority: Pair, *, force: bool = False) -> None:
    """Store a new CA. Raises ConfigError when there is one and `force` is not set."""
    contents = {CA_KEY: authority.key_pem(), CA_CERT: authority.cert_pem()}
    write_new(directory, contents, force)


def write_node(directory: Path, node: str, pair: Pair, ca_pem: bytes, *, force: bool) -> Path:
    """Store a node's three files below the CA's directory; returns their directory."""
    target = directory / NODES / node
    make_directory(directory / NODES)
    write_new(
        target, {NODE_KEY: pair.key_pem(), NODE_CERT: pair.cert_pem(), CA_CERT: ca_pem}, force
    )
    return target


def read_authority(directory: Path) -> Pair:
    """The CA of this directory. Raises ConfigError naming the file that cannot be used."""
    cert, key = directory / CA_CERT, directory / CA_KEY
    return read_pair(read_pem(cert), read_pem(key), str(cert), str(key))


def read_pem(path: Path) -> bytes:
    """The bytes of a PEM file. Raises ConfigError naming it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_PEM + 1)
    except FileNotFoundError as exc:
        raise ConfigError(f"there is no {path}; `usbdra pki init` makes a CA") from exc
    except OSError as exc:
        raise ConfigError(f"cannot read {path}: {exc.strerror}") from exc
    if len(data) > _MAX_PEM:
        raise ConfigError(f"{path} is too large for a certificate or key")
    return data


def write_new(directory: Path, contents: Mapping[str, bytes], force: bool) -> None:
    """Files by name, keys (`.key`) for their owner alone. Raises ConfigError when there is one
    already and `force` is not set."""
    make_directory(directory)
    present = [str(directory / name) for name in contents if (directory / name).exists()]
    if present and not force:
        raise ConfigError(f"there already is {' and '.join(present)}; force replaces it")
    for name, data in contents.items():
        mode = 0o600 if name.endswith(".key") else 0o644
        try:
            write_file(directory / name, data, mode, replace=force)
        except FileExistsError as exc:
            raise ConfigError(f"there already is {directory / name}; force replaces it") from exc
        except OSError as exc:
            raise ConfigError(f"cannot write {directory / name}: {exc.strerror}") from exc


def make_directory(directory: Path) -> None:
    """Make a directory that only its owner reads. Raises ConfigError naming it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(f"cannot make {directory}: {exc.strerror}") from exc


def write_file(path: Path, data: bytes, mode: int, *, replace: bool) -> None:
    """Whole or not at all: written beside, synced, then linked or renamed into place."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)  # whatever the umask took
            file.write(data)
            file.flush()
            os.fsync(fd)
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, fails if the name is taken meanwhile
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Bring a directory's names to the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
