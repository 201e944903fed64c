# SPDX-License-Identifier: Apache-2.0
"""Which settings of TCP are worth having: each against what usbdra sets, in the same run.

A setting is told from ours when every round of it is beyond every round of ours, and by a tenth;
else the kernel's default stays.
"""

from __future__ import annotations

import pytest

from bench.conftest import Replay
from bench.throughput import settings
from bench.throughput.model import verdict
from bench.throughput.settings import JOBS, NETWORKS, OURS, SETTINGS, Place
from tests.bed.bed import Bed


@pytest.fixture(scope="module")
def taken(bed: Bed, rounds: int) -> dict[Place, list[float]]:
    with settings.linked(bed) as ends:
        return settings.measure(bed, ends, rounds)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("job", JOBS)
def test_setting(
    replay: Replay, taken: dict[Place, list[float]], job: str, network: str, name: str
) -> None:
    seconds, ours = taken[network, job, name], taken[network, job, OURS]
    role = "yardstick" if name == OURS else "ours"
    more = {} if name == OURS else {"verdict": verdict(seconds, ours)}
    place = {"role": role, "over": f"{job}, {network}", "setting": name}
    replay(f"TCP: {job}, {network}", seconds, **place, **more)
