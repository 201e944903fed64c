# SPDX-License-Identifier: Apache-2.0
"""The agent ended between any two steps of Prepare and of Unprepare.

One claim goes through all of it: each end leaves the node as that step leaves it, and the agent
that comes next must, with the kubelet's next call, get as far as the following step, in the end
all the way.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space
from usbdra.plugin.acts import Step

PREPARE = [step for step in Step if step.value.startswith("prepare.")]
UNPREPARE = [step for step in Step if step.value.startswith("unprepare.")]


@pytest.fixture
def armed(usb: ClusterBed) -> Iterator[ClusterBed]:
    """Agents that end where they are told to."""
    with faults.armed(usb):
        yield usb


def test_r43_the_agent_ends_at_every_step(
    armed: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    assert list(Step) == PREPARE + UNPREPARE
    stick = gadgets.plug("a", "EVERYSTEP1")
    stick.fill()
    faults.order(armed, "b", PREPARE[0])
    space.apply(faults.disk_claim("stick", stick.serial), faults.reader("user", "stick", "b"))
    for step in PREPARE[1:]:
        faults.wait_ended(armed, "b")
        faults.order(armed, "b", step)
    faults.wait_ended(armed, "b")
    space.run("user")
    assert space.shell("user", f"sha256sum {faults.DISK}").split()[0] == stick.sha256()
    assert len(armed.machine("b").call("usb.used")) == 1

    faults.order(armed, "b", UNPREPARE[0])
    space.delete("pod", "user", "--wait=false")
    for step in UNPREPARE[1:]:
        faults.wait_ended(armed, "b")
        faults.order(armed, "b", step)
    faults.wait_ended(armed, "b")
    armed.api.wait_pod_gone("user", space.name)
    stick.at_home("disks")
