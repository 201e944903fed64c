# SPDX-License-Identifier: Apache-2.0
"""Names of sockets, and how they stay short enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from usbdra.errors import ConfigError
from usbdra.plugin.sockets import PLUGINS_DIR, REGISTRY_DIR, new_instance, socket_paths

from .claims import DRIVER

POD = "0d9a1f0c-6d5b-4d5b-9f4e-3b1f6b0c7f11"


def test_names_tell_pods_apart() -> None:
    one, two = (socket_paths(DRIVER, pod, Path("/r"), Path("/p")) for pod in ("pod-1", "pod-2"))
    assert str(one.registration) == f"/r/{DRIVER}-pod-1-reg.sock"
    assert str(one.plugin) == f"/p/{DRIVER}/dra-pod-1.sock"
    assert {one.registration, one.plugin}.isdisjoint({two.registration, two.plugin})


def test_r44_a_pod_that_starts_again_has_other_names() -> None:
    """The kubelet may have tried the old ones while the node booted, and pauses for them."""
    starts = [new_instance(POD) for _ in range(8)]
    assert all(start.startswith(f"{POD}-") for start in starts)
    made = [socket_paths(DRIVER, start, REGISTRY_DIR, PLUGINS_DIR) for start in set(starts)]
    assert len({p for one in made for p in (one.registration, one.plugin)}) == 2 * len(made) > 2
    assert {one.plugin.name for one in made} == {f"dra-{start}.sock" for start in starts}


def test_r41_default_directories_fit() -> None:
    """By a hash of the pod's UID; the UID itself is too long there."""
    paths = socket_paths(DRIVER, POD, REGISTRY_DIR, PLUGINS_DIR)
    assert paths.registration.name == "usb.virtualization.deckhouse.io-tk6o9McD9Hg-reg.sock"
    assert len(str(paths.registration)) <= 107
    assert len(str(paths.plugin)) <= 107


@pytest.mark.parametrize("length", range(1, 71))
def test_r41_long_directories_shorten_the_names(length: int) -> None:
    registry = Path("/" + "r" * length)
    paths = socket_paths("usb.example.com", POD, registry, Path("/p"))
    assert len(str(paths.registration)) <= 107
    assert paths.registration.parent == registry


def test_forms_are_those_of_the_go_helper() -> None:
    """Values computed by RollingUpdateRegistrarSocketFile of kubeletplugin v0.37.2."""
    uid = "11111111-2222-3333-4444-555555555555"
    names = [
        socket_paths(driver, uid, Path("/" + "r" * length), Path("/p")).registration.name
        for driver, length in (
            ("gpu.example.com", 10),
            ("gpu.example.com", 60),
            ("gpu.example.com.a-rather-long-name-of-a-driver", 60),
        )
    ]
    assert names == [
        "gpu.example.com-11111111-2222-3333-4444-555555555555-reg.sock",
        "gpu.example.com-Zm_2zKpbPAc-reg.sock",
        "dra-atNOLgr726b8e3AQrDFvCg-reg.sock",
    ]


def test_r41_what_cannot_fit_is_said() -> None:
    with pytest.raises(ConfigError, match="is longer than the 107 bytes"):
        socket_paths(DRIVER, POD, Path("/" + "r" * 90), Path("/p"))
