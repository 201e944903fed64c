# SPDX-License-Identifier: Apache-2.0
"""Which container a cgroup belongs to, by its path. Pure.

Owns the reading of the names that kubelet and runtimes give, with both cgroup drivers, in all
classes of service and below any parent. Sources: kubelet, pkg/kubelet/cm/cgroup_manager_linux.go
and pod_container_manager_linux.go; containerd, internal/cri/server/helpers.go; CRI-O,
internal/config/cgmgr.

    /kubepods/burstable/pod<UID>/<ID>
    /kubepods.slice/kubepods-pod<UID>.slice/cri-containerd-<ID>.scope
    /kubelet.slice/kubelet-kubepods-besteffort-pod<UID>.slice/crio-<ID>.scope/container
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_POD = re.compile(
    r"(?:[a-z0-9_.-]*-)?pod([0-9a-f]{8}([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12}"
    r"|[0-9a-f]{32})(?:\.slice)?"
)
"""32 digits: a pod that the kubelet reads from a file."""
_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{64})(?:\.scope)?")
OWN = "container"
"""Where crun puts the processes of a systemd scope."""


@dataclass(frozen=True, slots=True)
class Place:
    """A container and its cgroup, from the root of the hierarchy; `inner` is where below that
    its own processes are, if not in itself."""

    pod: str
    container: str
    cgroup: str
    inner: str = ""


def place(path: str) -> Place | None:
    """The container that processes in this cgroup belong to; None when they do not to one.

    What a container makes below its own cgroup is its own. Of several names that fit, the last
    counts: a node may itself be a container.
    """
    steps = path.split("/")
    for at in range(len(steps) - 1, 0, -1):
        pod, name = _POD.fullmatch(steps[at - 1]), _CONTAINER.fullmatch(steps[at])
        if pod and name:
            inner = "/".join(steps[at + 1 :])
            return Place(pod[1].replace("_", "-"), name[1], "/".join(steps[: at + 1]), inner)
    return None


def of_process(text: str) -> str | None:
    """The path of /proc/PID/cgroup in the hierarchy of version 2; None without one."""
    for line in text.splitlines():
        if line.startswith("0::/"):
            return line[3:].removesuffix(" (deleted)")
    return None
