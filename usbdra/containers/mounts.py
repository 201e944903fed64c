# SPDX-License-Identifier: Apache-2.0
"""Which claims a process has, by the directories of ours that are mounted for it. Pure.

Owns the reading of /proc/PID/mountinfo (Documentation/filesystems/proc.rst, 3.5). The kernel says
of each mount which directory of which file system it shows; the names that a container gives do
not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from usbdra.types import ClaimUid

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Source:
    """Where claims have their directories: a file system, `major:minor`, and the path in it."""

    device: str
    path: str


@dataclass(frozen=True, slots=True)
class Given:
    """A request of a claim that a container was given."""

    claim: ClaimUid
    request: str


@dataclass(frozen=True, slots=True)
class _Mount:
    device: str
    root: str
    point: str


def source(text: str, directory: PurePosixPath) -> Source | None:
    """What `directory` is in its file system, by our own mountinfo; None when that is unclear."""
    best: _Mount | None = None
    for mount in _mounts(text):
        point = PurePosixPath(mount.point)
        inside = directory == point or point in directory.parents
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount  # of two at one place the later one covers the other
    if best is None:
        return None
    inner = directory.relative_to(best.point)
    return Source(best.device, str(PurePosixPath(best.root) / inner))


def given(text: str, source: Source) -> frozenset[Given]:
    """Requests whose directory of links or metadata is mounted (plugin/cdi.py)."""
    prefix = f"{source.path.rstrip('/')}/"
    found = set()
    for mount in _mounts(text):
        if mount.device != source.device or not mount.root.startswith(prefix):
            continue
        match mount.root.removeprefix(prefix).split("/"):
            case [uid, "links", request]:
                found.add(Given(ClaimUid(uid), request))
            case [uid, "metadata", file] if file.endswith(".json"):
                found.add(Given(ClaimUid(uid), file.removesuffix(".json")))
    return frozenset(found)


def _mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 6:
            yield _Mount(fields[2], _plain(fields[3]), _plain(fields[4]))


def _plain(path: str) -> str:
    """Blanks and the like are written as `\\040` (fs/proc_namespace.c `mangle`)."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)
