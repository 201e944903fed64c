# SPDX-License-Identifier: Apache-2.0
"""Where the plugin listens, and which dead sockets may be removed.

Owns names and clean-up of socket files. Each start of an agent has paths of its own. So two can
serve at once during an upgrade, and a new one does not wait for an old one's silence: after a
reboot the kubelet tries the socket that the same pod has left, and pauses for up to two minutes
where nobody answered (pkg/kubelet/pluginmanager, by goroutinemap's exponential back-off). Otherwise
names are those of the Go helper (k8s.io/dynamic-resource-allocation v0.37.2,
kubeletplugin/draplugin.go).
"""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import secrets
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from usbdra.errors import ConfigError

log = logging.getLogger(__name__)

REGISTRY_DIR = Path("/var/lib/kubelet/plugins_registry")
PLUGINS_DIR = Path("/var/lib/kubelet/plugins")

MAX_PATH = 107
"""Bytes of a Unix socket's path, the closing zero left out (man 7 unix)."""


@dataclass(frozen=True, slots=True)
class SocketPaths:
    """The two sockets of one agent."""

    registration: Path
    plugin: Path


def new_instance(pod_uid: str) -> str:
    """What this start of a pod's agent is called among all others. A UID and four digits more are
    the most that fits into a socket's path below the kubelet's own directory."""
    return f"{pod_uid}-{secrets.token_hex(2)}"


def socket_paths(driver: str, instance: str, registry_dir: Path, plugins_dir: Path) -> SocketPaths:
    """The paths for this instance, shortened by hashes where a long directory needs it.

    Raises ConfigError when even the shortest does not fit.
    """
    own_dir = plugins_dir / driver
    short, both = _hash(instance, 8), _hash(f"{driver}\0{instance}", 16)
    return SocketPaths(
        registration=_first_that_fits(
            registry_dir / f"{driver}-{instance}-reg.sock",
            registry_dir / f"{driver}-{short}-reg.sock",
            registry_dir / f"dra-{both}-reg.sock",
        ),
        plugin=_first_that_fits(own_dir / f"dra-{instance}.sock", own_dir / f"dra-{short}.sock"),
    )


def remove_stale(driver: str, paths: SocketPaths) -> list[Path]:
    """Remove sockets that a killed agent of this driver left, and return them.

    A socket that somebody listens on stays: it is the other agent of an upgrade. What is not
    a socket, or not named like ours, is not touched.
    """
    removed = []
    for path in _ours(driver, paths):
        if _is_dead(path):
            log.info("removing the socket of an agent that is gone: %s", path)
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _ours(driver: str, paths: SocketPaths) -> Iterator[Path]:
    yield from sorted(paths.registration.parent.glob(f"{driver}-*-reg.sock"))
    yield from sorted(paths.plugin.parent.glob("dra-*.sock"))
    yield from (path for path in (paths.registration, paths.plugin) if path.exists())


def _is_dead(path: Path) -> bool:
    """Whether it is a socket nobody listens on."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    except FileNotFoundError:
        return False


def _first_that_fits(*candidates: Path) -> Path:
    for path in candidates:
        if len(bytes(path)) <= MAX_PATH:
            return path
    raise ConfigError(
        f"{candidates[-1]} is longer than the {MAX_PATH} bytes a socket's path may have; "
        "use a shorter kubelet directory or API group"
    )


def _hash(text: str, size: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:size]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
