# SPDX-License-Identifier: Apache-2.0
"""Requests for the victim's device that no claim entitles to, and what each must be told.

Owns the list, and makes the claims that it needs in the scene's namespaces. Every text is the
exporting node's own, whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.attacks.attacker import Attacker, Outcome
from tests.cluster.attacks.journal import Journal
from tests.cluster.attacks.scene import HOLD, Scene
from tests.cluster.claims import claim, device
from usbdra.types import ClaimUid
from usbdra.usbip.extension import ClaimRef


@dataclass(frozen=True)
class Attempt:
    """One request. `identity` None stands for node b's own; from node b unless `elsewhere`."""

    claim: ClaimRef | None
    said: str
    identity: Path | None = None
    elsewhere: bool = False


def not_entitled(scene: Scene) -> Iterator[Attempt]:
    """Node b with its own good certificate and claims that do not give it the device."""
    lab, there = scene.owner.name, f"device {scene.device} of node a"
    yield Attempt(None, "a device of this node is given only for a ResourceClaim")
    yield Attempt(_other_uid(lab, "none"), f"claim {lab}/none does not exist (any more)")
    idle = scene.write(claim("idle", [{"name": "usb", "exactly": device()}]))
    yield Attempt(idle, f"claim {lab}/idle is not allocated")
    other = scene.allocated("other-device", device_name="usb-0000-0000-x")
    yield Attempt(other, f"claim {lab}/other-device was not given {there}")
    pool = scene.allocated("other-node", pool="usb-b")
    yield Attempt(pool, f"claim {lab}/other-node was not given {there}")
    looking = scene.allocated("looking", adminAccess=True)
    yield Attempt(looking, f"claim {lab}/looking was not given {there}")
    for_a = scene.allocated("for-a", node="a")
    yield Attempt(for_a, f"claim {lab}/for-a was given to node a, not to b")
    foreign = scene.allocated("foreign", space=scene.other)
    fenced = f"device {scene.device} is assigned to another namespace than {scene.other.name}"
    yield Attempt(foreign, fenced)
    first = scene.allocated("again")
    scene.owner.delete("resourceclaim", "again")
    scene.allocated("again")
    yield Attempt(first, f"claim {lab}/again does not exist (any more)")
    going = scene.allocated("going")
    scene.owner.api.kubectl(
        "patch", "resourceclaim", "going", f"--namespace={lab}", "--type=merge",
        "-p", f'{{"metadata": {{"finalizers": ["{HOLD}"]}}}}',
    )  # fmt: skip
    scene.owner.delete("resourceclaim", "going", "--wait=false")
    yield Attempt(going, f"claim {lab}/going is being deleted")


def wrong_peers(scene: Scene, right: ClaimRef) -> Iterator[Attempt]:
    """A claim that gives node b the device, shown by somebody else; all certificates are good."""
    forged, b = scene.ours.node, scene.b.ip
    elsewhere = f"{scene.host} is no InternalIP of node b (it has {b}); links go between"
    yield Attempt(right, f"{elsewhere} InternalIPs", elsewhere=True)
    yield Attempt(right, "node c is not in the cluster", forged("c"))
    mine = "node a does not import from itself"
    yield Attempt(right, mine, forged("a", scene.uids["a"]))
    old = "the certificate is of an earlier node named b"
    yield Attempt(right, old, forged("b", scene.uids["a"]))
    moved = ClaimRef(scene.other.name, right.name, right.uid)
    fenced = f"device {scene.device} is assigned to another namespace than {scene.other.name}"
    yield Attempt(moved, fenced)


def all_refused(
    scene: Scene, attacker: Attacker, audit: Journal, attempts: Sequence[Attempt]
) -> None:
    """Try each, from node b or elsewhere: each is told its text, and the audit log has just it."""
    audit.mark()
    for attempt in attempts:
        by = scene.elsewhere if attempt.elsewhere else attacker
        outcome = by.grant(attempt.identity or scene.as_b, scene.device, attempt.claim)
        assert outcome == Outcome(attempt.said, "Refused"), attempt
    lines = audit.decisions(len(attempts))
    assert [line["detail"] for line in lines] == [one.said for one in attempts]
    for line, one in zip(lines, attempts, strict=True):
        assert (line["decision"], line["reason"]) == ("refused", "Refused")
        assert (line["device"], line["encrypted"]) == (scene.device, True)
        assert line["address"] == (scene.host if one.elsewhere else scene.b.ip)
        assert line.get("uid") == (one.claim.uid if one.claim else None)


def _other_uid(namespace: str, name: str) -> ClaimRef:
    return ClaimRef(namespace, name, ClaimUid("11111111-2222-3333-4444-555555555555"))
