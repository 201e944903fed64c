# SPDX-License-Identifier: Apache-2.0
"""Agents that are upgraded, and that end between any two steps of Prepare and of Unprepare.

One claim goes through all steps: each end leaves the node as that step leaves it, and the agent
that comes next must, with the kubelet's next call, get as far as the following step, in the end
all the way; the sockets of the one that ended are in its way (R41). Another pod of the same node
reads its disk from the first moment to the last.
"""

from __future__ import annotations

from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.faults import Reading, disk_claim, reader
from tests.cluster.gadgets import Gadget, Gadgets
from tests.cluster.space import Space
from usbdra.plugin.acts import Step

PREPARE = [step for step in Step if step.value.startswith("prepare.")]
UNPREPARE = [step for step in Step if step.value.startswith("unprepare.")]


def test_r41_r42_r43_upgrades_and_ends_at_every_step(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    assert list(Step) == PREPARE + UNPREPARE
    kept, stick = gadgets.plug("a", "KEPT1"), gadgets.plug("a", "EVERYSTEP1")
    stick.fill()
    space.apply(disk_claim("kept", kept.serial), reader("keeper", "kept", "b"))
    space.run("keeper")
    keeper = Reading(usb, "b", space, "keeper")
    keeper.wait()
    before, slices = _agents(usb), _slices(usb)

    with faults.armed(usb):
        assert not _agents(usb).items() & before.items()
        assert _slices(usb) == slices
        keeper.wait()
        assert keeper.failures() == []
        _prepare_with_ends(usb, space, stick)
        _unprepare_with_ends(usb, space, stick)
    keeper.wait()
    assert keeper.failures() == []
    space.delete("pod", "keeper")
    kept.at_home("disks")


def _prepare_with_ends(bed: ClusterBed, space: Space, stick: Gadget) -> None:
    """The pod runs in the end and reads what is on the stick."""
    faults.order(bed, "b", PREPARE[0])
    space.apply(disk_claim("stick", stick.serial), reader("user", "stick", "b"))
    for step in PREPARE[1:]:
        faults.wait_ended(bed, "b")
        faults.order(bed, "b", step)
    faults.wait_ended(bed, "b")
    space.run("user")
    assert space.shell("user", f"sha256sum {faults.DISK}").split()[0] == stick.sha256()
    assert len(bed.machine("b").call("usb.used")) == 2


def _unprepare_with_ends(bed: ClusterBed, space: Space, stick: Gadget) -> None:
    """The pod goes in the end and the stick is back in its node."""
    faults.order(bed, "b", UNPREPARE[0])
    space.delete("pod", "user", "--wait=false")
    for step in UNPREPARE[1:]:
        faults.wait_ended(bed, "b")
        faults.order(bed, "b", step)
    faults.wait_ended(bed, "b")
    bed.api.wait_pod_gone("user", space.name)
    stick.at_home("disks")


def _agents(bed: ClusterBed) -> dict[str, int]:
    return {name: faults.agent_pid(bed, name) for name in bed.nodes}


def _slices(bed: ClusterBed) -> dict[str, str]:
    return {name: item.metadata.uid for name, item in faults.slices(bed).items()}
