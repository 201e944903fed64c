# SPDX-License-Identifier: Apache-2.0
"""Paths of cgroups as kubelet, containerd and CRI-O name them."""

from __future__ import annotations

import pytest

from usbdra.containers import cgroups
from usbdra.containers.cgroups import Place

POD = "0b1e6c5a-93b2-4b5e-8f0e-3f1c2d4e5f60"
UNDERLINED = POD.replace("-", "_")
ID = "4f" * 32
STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/kubepods/pod{POD}/{ID}",
        f"/kubepods/burstable/pod{POD}/{ID}",
        f"/kubepods/besteffort/pod{POD}/crio-{ID}",
        f"/kubepods.slice/kubepods-pod{UNDERLINED}.slice/cri-containerd-{ID}.scope",
        "/kubepods.slice/kubepods-burstable.slice/"
        f"kubepods-burstable-pod{UNDERLINED}.slice/cri-containerd-{ID}.scope",
        "/kubepods.slice/kubepods-besteffort.slice/"
        f"kubepods-besteffort-pod{UNDERLINED}.slice/crio-{ID}.scope",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERLINED}.slice/"
        f"docker-{ID}.scope",
        f"/system.slice/kind/kubelet/kubepods/pod{POD}/{ID}",
    ],
)
def test_every_layout_names_pod_and_container(cgroup: str) -> None:
    assert cgroups.place(cgroup) == Place(POD, ID, cgroup)
    assert cgroups.place(f"{cgroup}/init.scope/x") == Place(POD, ID, cgroup, "init.scope/x")


def test_a_node_in_a_container_is_seen_through_the_inner_pod() -> None:
    inner = f"/kubepods/pod{STATIC}/{'ab' * 32}/kubelet/kubepods/burstable/pod{POD}/{ID}"
    assert cgroups.place(inner) == Place(POD, ID, inner)


def test_pods_of_files_have_uids_without_dashes() -> None:
    found = cgroups.place(f"/kubepods/pod{STATIC}/{ID}")
    assert found is not None
    assert found.pod == STATIC


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/system.slice/containerd.service",
        f"/kubepods/pod{POD}",
        f"/kubepods/pod{POD}/{ID[:-1]}",
        f"/kubepods/{POD}/{ID}",
        f"/kubepods/pod{POD}/other-{ID}",
        f"/../../pod{POD}x/{ID}",
        f"/kubepods.slice/kubepods-pod{UNDERLINED}.slice/crio-conmon-{ID}.scope",
    ],
)
def test_what_is_no_container_of_a_pod(path: str) -> None:
    assert cgroups.place(path) is None


def test_the_hierarchy_of_version_2_is_the_one_that_counts() -> None:
    text = f"12:devices:/kubepods/x\n0::/kubepods/pod{POD}/{ID}\n"
    assert cgroups.of_process(text) == f"/kubepods/pod{POD}/{ID}"
    assert cgroups.of_process("12:devices:/x\n") is None
    assert cgroups.of_process(f"0::/kubepods/pod{POD}/{ID} (deleted)\n") == (
        f"/kubepods/pod{POD}/{ID}"
    )
