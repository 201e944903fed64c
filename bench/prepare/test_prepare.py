# SPDX-License-Identifier: Apache-2.0
"""Prepare for a device of another node, from the kubelet's call to the answer, part by part.

Everything runs in emulated nodes. The kernel's part is the exporter's bind, the write to vhci up to
the device, and its drivers and nodes; the rest is ours: two reads of the claim by the API (the
importer's and, before it gives the device, the exporter's), the connection, TLS, records, files.
"""

from __future__ import annotations

import statistics

import pytest

from bench.conftest import Replay, our_part, spread
from bench.prepare.conftest import Measured

GROUP = "prepare of a remote claim"
PHASES = (
    "connect",
    "tls",
    "authorise",
    "exporter.authorise",
    "exporter.bind",
    "exporter.hand_over",
    "attach",
    "enumerate",
    "settle",
)
STEPS = ("recorded", "held", "files-written", "prepared")


def test_whole(replay: Replay, one: Measured) -> None:
    replay(GROUP, one.prepare, **spread(one.prepare))


def test_unprepare(replay: Replay, one: Measured) -> None:
    replay(GROUP, one.unprepare, **spread(one.unprepare))


def test_our_part(replay: Replay, one: Measured) -> None:
    """Goal: 50 ms under emulation."""
    pairs = zip(one.prepared, one.attached, strict=True)
    seconds = [our_part(prepared, attached) for prepared, attached in pairs]
    replay(GROUP, seconds, goal_p50_ms=50, **spread(seconds))


def test_call_above_the_work(replay: Replay, one: Measured) -> None:
    """gRPC, both ways: the caller's seconds less the agent's."""
    pairs = zip(one.prepare, one.prepared, strict=True)
    seconds = [max(whole - prepared["total"] / 1e3, 0.0) for whole, prepared in pairs]
    replay(f"{GROUP}: parts", seconds, **spread(seconds))


@pytest.mark.parametrize("phase", PHASES)
def test_phase(replay: Replay, one: Measured, phase: str) -> None:
    seconds = [attached[phase] / 1e3 for attached in one.attached]
    replay(f"{GROUP}: parts", seconds, **spread(seconds))


@pytest.mark.parametrize("step", STEPS)
def test_step(replay: Replay, one: Measured, step: str) -> None:
    """recorded: the claim read, planned, on record; held: on record what we have."""
    seconds = [prepared[step] / 1e3 for prepared in one.prepared]
    replay(f"{GROUP}: parts", seconds, **spread(seconds))


@pytest.mark.parametrize("count", [1, 16])
def test_at_once(replay: Replay, one: Measured, sixteen: Measured, count: int) -> None:
    """Until the last of them is prepared; goal: 16 take at most 3 times one."""
    found = one if count == 1 else sixteen
    role = {"role": "yardstick"} if count == 1 else {"role": "ours", "goal": 3.0}
    share = round(statistics.median(found.both) / count * 1e3, 1)
    replay(f"{GROUP}, several at once", found.both, per_claim_ms=share, **role)
