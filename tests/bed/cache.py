# SPDX-License-Identifier: Apache-2.0
"""Built things (images, kernels, wheels) kept outside the checkout.

An entry is a folder named by the hash of everything it was built from. It is built under
another name and renamed, so an entry that exists is whole; a file lock keeps two builders of
one entry apart. Must not know how anything is built.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bed.progress import say

KEEP_UNUSED_DAYS = 14
KEEP_AT_LEAST = 3


def cache_root() -> Path:
    """`$USBDRA_CACHE`, else `~/.cache/usbdra`."""
    return Path(os.environ.get("USBDRA_CACHE") or Path.home() / ".cache" / "usbdra")


def digest(*parts: object) -> str:
    """Short hash over JSON-able values, in order."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def tree_digest(paths: Iterable[Path], suffixes: tuple[str, ...] = ()) -> str:
    """Hash of names, modes and contents of files; folders are walked.

    suffixes, when given, keeps only files in folders with these endings. Caches of Python and
    hidden files do not count.
    """
    h = hashlib.sha256()
    for path in sorted(paths):
        for file in _files(path, suffixes):
            h.update(f"{file.relative_to(path.parent)}\0{file.stat().st_mode & 0o777}\0".encode())
            h.update(hashlib.sha256(file.read_bytes()).digest())
    return h.hexdigest()[:20]


def _files(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(p == "__pycache__" or p.startswith(".") for p in file.parts[-4:])
        if file.is_file() and not hidden and (not suffixes or file.name.endswith(suffixes)):
            yield file


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, waiting for another holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another builder of {path.stem}")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def entry(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """Folder of the entry `kind`/`key`, built by `build(folder)` when it is not there yet."""
    root = cache_root() / kind
    final = root / key
    if not final.is_dir():
        with locked(root / f"{key}.lock"):
            if not final.is_dir():
                _build(root, key, build)
                _prune(root, final)
    os.utime(final)
    return final


def _build(root: Path, key: str, build: Callable[[Path], None]) -> None:
    for old in root.glob(f".{key}.*"):  # left by a builder that died; we hold its lock
        shutil.rmtree(old, ignore_errors=True)
    temp = root / f".{key}.{os.getpid()}"
    temp.mkdir(parents=True)
    try:
        build(temp)
        temp.rename(root / key)
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        raise


def _prune(root: Path, fresh: Path) -> None:
    """Drop entries long unused; open files of a running bed stay valid."""
    old = sorted((p for p in root.iterdir() if p.is_dir() and p.name[0] != "."), key=_age)
    for path in old[KEEP_AT_LEAST:]:
        if path != fresh and _age(path) > KEEP_UNUSED_DAYS * 86400:
            shutil.rmtree(path, ignore_errors=True)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime
