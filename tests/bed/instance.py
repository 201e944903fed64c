# SPDX-License-Identifier: Apache-2.0
"""Instances of beds on this machine: their folders, who holds them, and what is left behind.

A held lock file tells a live bed from one whose owner was killed; a detached machine inherits
the lock. Must not know how a bed is made.
"""

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.bed.errors import BedError
from tests.bed.net import Network
from tests.bed.process import end_recorded
from tests.bed.progress import say

# short, on a disk: Unix socket paths end at 108 bytes, and overlays grow
INSTANCES = Path("/var/tmp")
PREFIX = "usbdra-bed-"


def hold(folder: Path) -> int:
    """Descriptor that holds the instance; a detached machine inherits it."""
    fd = os.open(folder / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _held(folder: Path) -> bool:
    try:
        fd = os.open(folder / "owner.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its owner removes it at this moment
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove(folder: Path) -> None:
    """End what is left of an instance: machines, other processes, network, files."""
    for pidfile in folder.glob("*/*.pid"):
        end_recorded(pidfile, str(folder))
    Network(folder.name).down()
    shutil.rmtree(folder, ignore_errors=True)


def named(folders: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """Those with these names, with or without their path; all of them when none is named.

    Raises BedError for a name that no bed has.
    """
    known = {folder.name: folder for folder in folders}
    wanted = [Path(name).name for name in names] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise BedError(f"no bed {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    return [known[name] for name in wanted]


def sweep() -> None:
    """Remove beds whose owner was killed before it could."""
    for lock in INSTANCES.glob(f"{PREFIX}*/owner.lock"):
        if not _held(lock.parent):
            say(f"removing {lock.parent.name}, left by a killed run")
            remove(lock.parent)


def detached_beds(description: str = "bed.json") -> list[Path]:
    """Folders of beds that `up` left running; `description` is the file of their kind."""
    return [f.parent for f in INSTANCES.glob(f"{PREFIX}*/{description}") if _held(f.parent)]
