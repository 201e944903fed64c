# SPDX-License-Identifier: Apache-2.0
"""A systemd beside a node's own init: what runtimes ask for scopes with the systemd cgroup driver.

Owns its life. It is process 1 of a PID namespace and has the node's cgroups, but starts nothing but
a bus: its target has nothing else. The host's name, which it sets at its start, is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.bed.node import Node

START_S = 90.0
# Without its default dependencies nothing else of the node is started by it.
_UNITS = {
    "bed.target": "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\nAfter=dbus.socket\n",
    "dbus.socket": "[Unit]\nDefaultDependencies=no\n"
    "[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\n"
    "[Service]\nType=notify\nExecStart=dbus-daemon --system --address=systemd: --nofork"
    " --nopidfile --systemd-activation\n",
}
_START = r"""
mount -t tmpfs none /run/systemd
mount -t tmpfs none /run/dbus
mkdir -p /run/systemd/system
cp /run/bed/units/* /run/systemd/system
export container=bed
exec /lib/systemd/systemd --system --unit=bed.target --log-target=console --show-status=no
"""
_READY = """
until PID=$(pgrep -xo systemd) && test -S /proc/$PID/root/run/systemd/private
do sleep 0.2; done
nsenter -t $PID -m -p systemctl is-system-running --wait
"""
# its scopes, slices and itself are groups of their own; the node's control server is in none
_REMOVE = """
find /sys/fs/cgroup -mindepth 1 -depth -type d -exec rmdir {} +
"""


@contextmanager
def systemd(node: Node) -> Iterator[list[str]]:
    """Words to run a command beside it with, in its namespaces. Cgroups of version 2 are mounted
    at /sys/fs/cgroup already."""
    node.sh("mkdir -p /run/systemd /run/dbus")
    for name, text in _UNITS.items():
        node.write(f"/run/bed/units/{name}", text)
    start = ["unshare", "-m", "-u", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-ec", _START]
    process = node.start(start)
    try:
        node.run(["sh", "-c", _READY], timeout=START_S, check=False)
        pid = node.sh("pgrep -xo systemd")
        yield ["nsenter", "-t", pid, "-m", "-p", "--"]
    finally:
        process.stop()
        node.sh(_REMOVE)
