# SPDX-License-Identifier: Apache-2.0
"""Where both nodes' CPUs are during Prepare: samples for docs/performance, and what they show.

py-spy stops the processes from outside, so that C counts as well as Python, and what is sampled
runs no code for it. FLAME_ROUNDS rounds, 200 by default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.cluster.conftest import Plane
from bench.cluster.machine import Machine
from bench.flame import folded
from bench.run import machine

ROUNDS = int(os.environ.get("FLAME_ROUNDS", "200"))
PER_SECOND = 500
OUTPUT = Path(os.environ.get("FLAME_OUTPUT", "build/results/flame.json"))


def test_flame(plane: Plane, claim: dict[str, str], tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    spy = Path(sys.executable).with_name("py-spy")
    sampler = [spy, "record", "--native", "--subprocesses", f"--rate={PER_SECOND}"]
    sampler += ["--format=raw", f"--output={raw}", "--"]
    facts = machine()
    with Machine(plane.namespace, plane.account) as made:
        words = (tmp_path, made.root / "memory", claim["namespace"], ROUNDS)
        program = [sys.executable, "-m", "bench.flame.repeated", *words]
        command = [*sampler, *program, f"{claim['name']}={claim['uid']}"]
        subprocess.run(made.inside([str(word) for word in command]), check=True)
    whole = folded.of_prepare(raw.read_text().splitlines())
    assert any(folded.PREPARE in stack for stack in whole)
    run = {
        "machine": facts,
        "rounds": ROUNDS,
        "samples": sum(whole.values()),
        "shares": folded.shares(whole),
        "stacks": folded.cut(whole),
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(run, indent=1) + "\n")
