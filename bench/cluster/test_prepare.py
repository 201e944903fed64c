# SPDX-License-Identifier: Apache-2.0
"""Our part of Prepare for a device of another node, natively: see pair.py for what is real.

Goal: 10 ms, all of it but the kernels' own work. It holds three answers of the API server (claim,
slices of the node, and the claim again by the exporter), both ends of the handshake, and two
durable records of the claim. floor.py does the least of that by itself, as the yardstick.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.cluster.conftest import Plane
from bench.cluster.machine import Machine
from bench.cluster.pair import CLAIMS
from bench.conftest import Replay, our_part, spread

ROUNDS = int(os.environ.get("BENCH_PAIRS", "10"))
GROUP = "our part of Prepare, native"
ENUMERATION_MS = 300
"""What the bed's kernels take for a stick that is attached alone, and real hosts as well."""
PHASES = ("connect", "clear", "authorise", "exporter.authorise", "exporter.hand_over", "attach")
STEPS = ("recorded", "held", "files-written", "prepared")


Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def run(
    plane: Plane, claims: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """run(rounds, at_once, enumeration in ms): what pair.py says of each round."""

    def told(rounds: int, at_once: int, enumeration: int) -> list[Any]:
        with Machine(plane.namespace, plane.account) as machine:
            folder: Path = tmp_path_factory.mktemp("pair")
            named = [f"{claim['name']}={claim['uid']}" for claim in claims]
            words = (claims[0]["namespace"], rounds, at_once, enumeration, *named)
            found: list[Any] = machine.told("pair", folder, machine.root / "memory", *words)
            return found

    return told


@pytest.fixture(scope="module")
def samples(run: Run) -> list[Any]:
    """One claim at a time, whose device comes at once."""
    return run(ROUNDS, 1, 0)


def test_our_part(replay: Replay, samples: list[Any]) -> None:
    """Without the phases of the kernels, which are the work of the fakes here."""
    seconds = [our_part(sample["prepared"], sample["attached"]) for sample in samples]
    replay(GROUP, seconds, role="ours", goal_p50_ms=10, **spread(seconds))


def test_floor(replay: Replay, samples: list[Any]) -> None:
    """Two reads, a handshake, two writes, and no code of ours around them."""
    seconds = [sample["floor"]["total"] / 1e3 for sample in samples]
    replay(GROUP, seconds, role="yardstick", **spread(seconds))


@pytest.mark.parametrize("part", ["reads", "handshake", "writes"])
def test_floor_part(replay: Replay, samples: list[Any], part: str) -> None:
    seconds = [sample["floor"][part] / 1e3 for sample in samples]
    replay(f"{GROUP}: parts of the floor", seconds, **spread(seconds))


def test_unprepare(replay: Replay, samples: list[Any]) -> None:
    seconds = [sample["given_back"]["total"] / 1e3 for sample in samples]
    replay(GROUP, seconds, **spread(seconds))


@pytest.mark.parametrize("phase", PHASES)
def test_phase(replay: Replay, samples: list[Any], phase: str) -> None:
    seconds = [sample["attached"][phase] / 1e3 for sample in samples]
    replay(f"{GROUP}: phases of the link", seconds, **spread(seconds))


@pytest.mark.parametrize("step", STEPS)
def test_step(replay: Replay, samples: list[Any], step: str) -> None:
    seconds = [sample["prepared"][step] / 1e3 for sample in samples]
    replay(f"{GROUP}: steps of the claim", seconds, **spread(seconds))


@pytest.mark.parametrize("at_once", [1, CLAIMS])
def test_at_once(replay: Replay, run: Run, at_once: int) -> None:
    """Until the last of them is prepared, on devices that take a moment to come."""
    seconds = [sample["all"] for sample in run(max(ROUNDS // 5, 2), at_once, ENUMERATION_MS)]
    role = {"role": "yardstick"} if at_once == 1 else {"role": "ours", "goal": 3.0}
    replay("Prepare of several claims at once, native", seconds, **role, **spread(seconds))
