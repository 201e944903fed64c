# SPDX-License-Identifier: Apache-2.0
"""From a pod and the name of a socket in one of its volumes to a connection.

Owns the way through a directory that the pod's own containers write: no step follows a link, so
that nothing outside the volume is ever reached, and who listens must be who made the socket.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from pathlib import Path

from usbdra._native import sockfd
from usbdra.errors import PlugFailed
from usbdra.hotplug.qmp import MachineGone

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VOLUMES = ("volumes", "kubernetes.io~empty-dir")
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ECONNREFUSED)
MAX_STEPS = 16


def connect(kubelet_dir: Path, pod: str, where: str) -> socket.socket:
    """A connection to the socket `VOLUME/PATH` in an emptyDir of the pod with this UID.

    Raises MachineGone when pod, socket or listener is not there any more; PlugFailed for a name
    that is none, a way that leaves the volume, and a socket that is another user's.
    """
    parts = where.split("/")
    if not _UID.fullmatch(pod):
        raise PlugFailed(f"{pod!r} is no UID of a pod")
    if len(parts) < 2 or len(parts) > MAX_STEPS or any(p in ("", ".", "..") for p in parts):
        raise PlugFailed(f"{where!r} does not name a socket as VOLUME/PATH")
    try:
        return _connect(kubelet_dir / "pods", (pod, *_VOLUMES, *parts))
    except OSError as error:
        text = f"QMP socket {where} of pod {pod}: {os.strerror(error.errno or 0)}"
        if error.errno in _GONE:
            raise MachineGone(text) from error
        raise PlugFailed(text) from error


def _connect(start: Path, steps: tuple[str, ...]) -> socket.socket:
    at = os.open(start, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps:
            found = os.open(step, _STEP, dir_fd=at)
            os.close(at)
            at = found
        facts = os.fstat(at)
        if not stat.S_ISSOCK(facts.st_mode):
            raise PlugFailed(f"{'/'.join(steps[3:])} is no socket, or a link to one")
        return _dial(at, facts.st_uid)
    finally:
        os.close(at)


def _dial(at: int, owner: int) -> socket.socket:
    """Connect to the very file that was looked at, whatever has its name by now."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)  # a full backlog is an error, not a wait
        sock.connect(f"/proc/self/fd/{at}")
        _, uid, _ = sockfd.peer_credentials(sock.fileno())
        if uid != owner:
            raise PlugFailed(f"user {uid} listens on a socket that user {owner} made")
    except BaseException:
        sock.close()
        raise
    return sock
