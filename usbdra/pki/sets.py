# SPDX-License-Identifier: Apache-2.0
"""A node's key, certificate and bundle as one set that changes whole.

Owns the layout below one directory: sets of files that never change, and the link `current` to
one of them, moved by a rename. A reader sees the old set or the new one, never a key with
another's certificate, wherever the writer was killed.

    <dir>/current -> set-<hex>
    <dir>/set-<hex>/tls.crt, tls.key, ca.crt
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from usbdra.errors import ConfigError
from usbdra.pki import files

CURRENT = "current"
_PREFIX = "set-"


def publish(directory: Path, contents: Mapping[str, bytes]) -> Path:
    """Make `contents` (file name to bytes) the current set; returns the path of the link.

    Directories are 0700 and files 0600. The set before stays for readers that have begun to
    read it; older ones go. Raises ConfigError naming what cannot be written.
    """
    try:
        files.make_directory(directory)
        with _alone(directory):
            return _publish(directory, contents)
    except OSError as error:
        name = error.filename or directory
        raise ConfigError(f"cannot write {name}: {error.strerror}") from error


def _publish(directory: Path, contents: Mapping[str, bytes]) -> Path:
    link = directory / CURRENT
    fresh = directory / f"{_PREFIX}{secrets.token_hex(8)}"
    fresh.mkdir(mode=0o700)
    for name, data in contents.items():
        files.write_file(fresh / name, data, 0o600, replace=False)
    before = link.readlink().name if link.is_symlink() else ""
    temporary = directory / f".{CURRENT}.{secrets.token_hex(8)}"
    temporary.symlink_to(fresh.name)
    temporary.replace(link)
    files.sync_directory(directory)
    _sweep(directory, {fresh.name, before})
    return link


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two agents of an upgrade write in turn: a sweep would take the other's unfinished set."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sweep(directory: Path, keep: set[str]) -> None:
    """Remove sets that nobody reads, and links that a kill left half made."""
    for path in directory.iterdir():
        if path.name.startswith(_PREFIX) and path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.startswith(f".{CURRENT}."):
            path.unlink(missing_ok=True)
