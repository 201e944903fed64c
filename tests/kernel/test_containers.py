# SPDX-License-Identifier: Apache-2.0
"""Devices of a running container on both kernels: a process with a device program as runc loads
it, and containers that runc and crun make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bed.node import Node
from tests.contract import container_bodies
from tests.contract.container_bodies import SYSTEMD
from tests.kernel.systemd import systemd
from tests.oracle import ebpf

WITHIN_MS = 1000.0
"""Of one change on an emulated node; some milliseconds on a real one."""
RUN = """
import json, sys
sys.path.insert(0, "/run/bed")
import container_bodies
print(json.dumps(container_bodies.run(*sys.argv[1:])))
"""


@pytest.fixture
def bodies(node: Node) -> Node:
    """A node with what runs in it, and cgroups as Kubernetes wants them."""
    node.sh("grep -q cgroup2 /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup")
    for module in (container_bodies, ebpf):
        path = Path(str(module.__file__))
        node.push(path, f"/run/bed/{path.name}")
    return node


def judge(times: dict[str, float]) -> None:
    assert times.keys() == {"take_ms", "give_ms"}
    assert max(times.values()) < WITHIN_MS, times


@pytest.mark.parametrize("runtime", ["", "runc", "crun"])
def test_r60_a_running_container_loses_one_number_and_gets_another(
    bodies: Node, runtime: str
) -> None:
    judge(json.loads(bodies.python(RUN, runtime, timeout=120).out))


def test_r62_scopes_of_systemd_keep_what_was_given(bodies: Node) -> None:
    """The systemd cgroup driver: systemd makes a program of its own when a container is resized
    and at each `systemctl daemon-reload`."""
    with systemd(bodies) as beside:
        for runtime in ("runc", "crun"):
            words = [*beside, "/opt/usbdra/bin/python", "-c", RUN, runtime, SYSTEMD]
            judge(json.loads(bodies.run(words, timeout=120).out))
