# SPDX-License-Identifier: Apache-2.0
"""A control plane without machines: what API server, scheduler and controllers decide alone.

Owns its network namespace and its folder, which a later bed sweeps when this run was killed.
Starts in some ten seconds and needs no QEMU.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bed.clusterbin import cluster_binary
from tests.bed.instance import INSTANCES, PREFIX, hold, remove, sweep
from tests.bed.net import HOST_IP4, Network
from tests.cluster.api import ClusterApi
from tests.cluster.controlplane import ControlPlane


@dataclass(frozen=True)
class Alone:
    """A running control plane, an administrator's clients of it, and a folder that goes with it."""

    plane: ControlPlane
    api: ClusterApi
    folder: Path


@contextlib.contextmanager
def control_plane_alone(
    feature_gates: Mapping[str, bool] | None = None, apiserver_flags: Sequence[str] = ()
) -> Iterator[Alone]:
    """etcd, API server, scheduler and controllers in a namespace of their own."""
    binary = cluster_binary()
    sweep()
    folder = INSTANCES / f"{PREFIX}plane-{secrets.token_hex(3)}"
    folder.mkdir()
    lock = hold(folder)
    try:
        network = Network(folder.name)
        network.up()
        data = folder / "control-plane"
        data.mkdir()
        with ControlPlane(
            binary,
            network.name,
            data,
            HOST_IP4,
            feature_gates,
            watch_nodes=False,
            apiserver_flags=apiserver_flags,
        ) as plane:
            api = ClusterApi(plane.admin_kubeconfig, (str(binary), "kubectl"))
            with contextlib.closing(api):
                yield Alone(plane, api, folder)
    finally:
        os.close(lock)
        remove(folder)


def add_node(api: ClusterApi, name: str, labels: Mapping[str, str]) -> None:
    """Make a Node without a machine.

    It says it is ready, so that the scheduler places pods there; no kubelet starts them.
    """
    everywhere = {"kubernetes.io/hostname": name, **labels}
    api.core.create_node({"metadata": {"name": name, "labels": everywhere}})
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": "no machine"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    api.core.patch_node_status(name, {"status": status})
