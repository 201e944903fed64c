# SPDX-License-Identifier: Apache-2.0
"""A link after its cable was out, natively: see back.py for what is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.cluster.cable import Cable
from bench.cluster.conftest import Plane
from bench.cluster.machine import Machine
from bench.cluster.pair import EXPORTER
from bench.conftest import Replay, spread

ROUNDS = int(os.environ.get("BENCH_CUTS", "2"))
GROUP = "cable out and in again"
OUTLIVED_SECONDS = 7.0
"""With pauses that double, TCP tries again 5 s after the end of such a cut."""


@pytest.fixture(scope="module")
def moved(plane: Plane, claim: dict[str, str]) -> Iterator[dict[str, str]]:
    """The claim, with the node that has its device at the far end of the cable."""

    def at(address: str) -> None:
        addresses = [{"type": "InternalIP", "address": address}]
        plane.api.core.patch_node_status(EXPORTER, {"status": {"addresses": addresses}})

    at(Cable.address)
    yield claim
    at("127.0.0.1")


@pytest.fixture(scope="module")
def samples(
    plane: Plane, moved: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[float]]:
    """Of all rounds."""
    with Machine(plane.namespace, plane.account) as machine:
        folder: Path = tmp_path_factory.mktemp("back")
        words = (moved["namespace"], ROUNDS, f"{moved['name']}={moved['uid']}")
        found: dict[str, list[float]] = machine.told(
            "back", folder, machine.root / "memory", *words
        )
        return found


def test_known(replay: Replay, samples: dict[str, list[float]]) -> None:
    """Until the node that uses the device knows that the other one is away."""
    replay(GROUP, samples["known"], goal_max_ms=15000, **spread(samples["known"]))


def test_back(replay: Replay, samples: dict[str, list[float]]) -> None:
    """From the network's return until the device is attached again."""
    replay(GROUP, samples["back"], goal_p99_ms=2000, **spread(samples["back"]))


@pytest.fixture(scope="module")
def outlived() -> dict[str, list[float]]:
    """Of connections that go on after a cut."""
    words = ("bench.cluster.outlived", ROUNDS, OUTLIVED_SECONDS)
    command = ["unshare", "--net", sys.executable, "-m", *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("options", ["kernel", "ours"])
def test_outlived(replay: Replay, outlived: dict[str, list[float]], options: str) -> None:
    """From the network's return until what was on its way is there (Linux 6.15: `resend`)."""
    role = {"role": "yardstick"} if options == "kernel" else {"role": "ours", "goal_p99_ms": 2000}
    group = f"cable out for {OUTLIVED_SECONDS:g} s, the connection goes on"
    replay(group, outlived[options], **role, **spread(outlived[options]))
