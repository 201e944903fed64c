# SPDX-License-Identifier: Apache-2.0
"""Small pieces of the fake sysfs: relative links and the majors of child nodes."""

from __future__ import annotations

import os
from pathlib import Path

BLOCK_MAJORS = {"block": 8}
_CHAR_MAJORS = {"tty": 188, "hidraw": 241, "input": 13, "sound": 116, "video4linux": 81}


def child_major(subsystem: str) -> int:
    """A major number as a kernel might give it to nodes of this subsystem."""
    return BLOCK_MAJORS.get(subsystem) or _CHAR_MAJORS.get(subsystem, 180)


def link(at: Path, target: Path) -> None:
    """A relative symlink, as sysfs has them; an old one at the same place is replaced."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.unlink(missing_ok=True)
    at.symlink_to(os.path.relpath(target, at.parent))
