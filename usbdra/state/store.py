# SPDX-License-Identifier: Apache-2.0
"""Records on disk, one JSON file each, written so that a crash leaves the old or the new one.

Owns the files of one directory. A file that cannot be understood is set aside under another name
and reported, never overwritten and never taken for an empty one. Must not know what is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from usbdra.errors import StateError
from usbdra.state.schema import Schema

T = TypeVar("T")
_Stamp = tuple[int, int, int, int, int]

MAX_BYTES = 1 << 20
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that could not be used: where it is kept now, and what was wrong with it."""

    name: str
    path: Path
    reason: str


class RecordStore(Generic[T]):
    """The records of one kind in `directory`, which is made when missing (mode 0700).

    Names are file names without the suffix: letters, digits, `.`, `_`, `-`. Records are values:
    who reads one twice may get the same object.
    """

    def __init__(self, directory: Path, schema: Schema[T]) -> None:
        self._directory = directory
        self._schema = schema
        # What each file held when it was last read. Another process may write it at any time, so
        # it is looked at each time; a replaced file has another inode and times.
        self._known: dict[str, tuple[_Stamp, T]] = {}

    def save(self, name: str, record: T) -> None:
        """Write the record so that it is on disk, whole, when this returns.

        Raises StateError (no space, read-only, not permitted); the old record is intact then.
        """
        path = self._path(name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                _write_file(temporary, self._text(record))
                os.rename(temporary, path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            _sync_directory(self._directory)
        except OSError as error:
            raise StateError(f"record {path} cannot be written: {error}") from error

    def load(self, name: str) -> T | None:
        """The record, None when there is none.

        Raises StateError when the file cannot be understood; it has been set aside then, and its
        new name is in the text. The next `load` finds no record.
        """
        path = self._path(name)
        found = self._read(path)
        if isinstance(found, SetAside):
            raise StateError(f"record {path} {found.reason}; it is kept as {found.path}")
        return found

    def load_all(self) -> tuple[dict[str, T], list[SetAside]]:
        """All records by name, and the files that were set aside on the way.

        Temporary files of writers that died are removed. Raises StateError when the directory
        cannot be read.
        """
        records: dict[str, T] = {}
        aside: list[SetAside] = []
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return {}, []
        except OSError as error:
            raise StateError(f"records in {self._directory} cannot be read: {error}") from error
        for file in names:
            path = self._directory / file
            if file.startswith(".") and file.endswith(".tmp"):
                with suppress(OSError):
                    path.unlink()
            elif file.endswith(_SUFFIX) and _NAME.fullmatch(file.removesuffix(_SUFFIX)):
                found = self._read(path)
                if isinstance(found, SetAside):
                    aside.append(found)
                elif found is not None:
                    records[file.removesuffix(_SUFFIX)] = found
        return records, aside

    def delete(self, name: str) -> None:
        """Remove the record; none is no error. Raises StateError."""
        path = self._path(name)
        try:
            path.unlink()
            self._known.pop(path.name, None)
            _sync_directory(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(f"record {path} cannot be removed: {error}") from error

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise StateError(f"{name!r} cannot name a record")
        return self._directory / f"{name}{_SUFFIX}"

    def _text(self, record: T) -> bytes:
        data = dict(self._schema.encode(record))
        document = {
            "kind": self._schema.kind,
            "version": self._schema.version,
            "checksum": _checksum(data),
            "data": data,
        }
        return json.dumps(document, sort_keys=True).encode() + b"\n"

    def _read(self, path: Path) -> T | SetAside | None:
        known = self._known.pop(path.name, None)
        try:
            if known is not None and known[0] == _stamp(path.stat()):
                self._known[path.name] = known
                return known[1]
            raw, stamp = _read_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"record {path} cannot be read: {error}") from error
        try:
            found = self._decode(raw)
        except (ValueError, RecursionError) as error:
            return _set_aside(path, str(error))
        self._known[path.name] = stamp, found
        return found

    def _decode(self, raw: bytes) -> T:
        if len(raw) > MAX_BYTES:
            raise ValueError(f"is larger than {MAX_BYTES} bytes")
        try:
            document = json.loads(raw)
        except ValueError as error:
            raise ValueError(f"is not JSON ({error})") from error
        if not isinstance(document, dict) or document.get("kind") != self._schema.kind:
            raise ValueError(f"is not of the kind {self._schema.kind}")
        version = document.get("version")
        if type(version) is not int or not 1 <= version <= self._schema.version:
            raise ValueError(f"has version {version!r:.20}; 1 to {self._schema.version} are known")
        data = document.get("data")
        if not isinstance(data, dict) or document.get("checksum") != _checksum(data):
            raise ValueError("does not match its checksum")
        try:
            return self._schema.decode(version, data)
        except ValueError as error:
            raise ValueError(f"is not valid ({error})") from error


def _checksum(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _write_file(path: Path, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(text)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _read_file(path: Path) -> tuple[bytes, _Stamp]:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1), _stamp(os.fstat(file.fileno()))


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _set_aside(path: Path, reason: str) -> SetAside:
    """Rename to the first free `<file>.bad-N`; link() never replaces an older one."""
    number = 1
    while True:
        kept = path.with_name(f"{path.name}.bad-{number}")
        try:
            os.link(path, kept)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise StateError(f"record {path} {reason}, and cannot be set aside: {error}") from error
        path.unlink()
        _sync_directory(path.parent)
        return SetAside(path.name.removesuffix(_SUFFIX), kept, reason)
