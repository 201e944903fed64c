# SPDX-License-Identifier: Apache-2.0
"""A pod writes to a disk of another node while the link between them is cut ten times.

The stick's medium is read in its own node, past the USB stack: each block that the pod was told to
be written is there, and each write that failed said so.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path

from tests.bed.progress import say
from tests.cluster import faults
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer
from tests.cluster.faults import Reading, disk_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.matrix.acts import cut
from tests.cluster.space import Space

BLOCK = 64 * 1024
SIZE_MIB = 4
BLOCKS = SIZE_MIB * 1024 * 1024 // BLOCK
CUTS = (4, 25)
"""Seconds, five times each: TCP outlives the first, no link the second."""
RESULTS = Path("build/results/copy.json")
# Block N goes to place N modulo BLOCKS. Only what failed is written again.
_WRITER = f"""\
n=0
while [ ! -e /tmp/stop ]; do
  yes "block $n" | head -c {BLOCK} >/tmp/block
  until said=$(dd if=/tmp/block of={faults.DISK} bs={BLOCK} seek=$((n % {BLOCKS})) \
      conv=notrunc,fsync 2>&1); do
    echo "failed $n:" $said; sleep 0.3
  done
  echo "acked $n"; n=$((n + 1))
done
touch /tmp/over
exec sleep infinity
"""


def content(number: int) -> bytes:
    """What the pod writes as this block."""
    line = f"block {number}\n".encode()
    return (line * (BLOCK // len(line) + 1))[:BLOCK]


def medium_after(count: int) -> bytes:
    """The whole medium once the blocks below `count` are on it."""
    places = [bytes(BLOCK)] * BLOCKS
    for number in range(count):
        places[number % BLOCKS] = content(number)
    return b"".join(places)


def test_ten_cuts_lose_no_acknowledged_byte(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "COPIED1", size_mib=SIZE_MIB)
    writer = consumer("writer", "stick", node="b", command=("sh", "-c", _WRITER))
    space.apply(disk_claim("stick", stick.serial), writer)
    space.run("writer")
    writing = Reading(usb, "b", space, "writer")
    writing.wait("acked")
    back = []
    for number, seconds in enumerate(CUTS * 5, 1):
        with cut(usb, "b", seconds):
            pass
        healed = time.monotonic()
        writing.wait("acked")
        back.append(round(time.monotonic() - healed, 1))
        say(f"cut {number} of {seconds} s: writes again after {back[-1]} s")
    space.shell("writer", "touch /tmp/stop; until [ -e /tmp/over ]; do sleep 0.2; done")
    lines = writing.lines()
    acked = [int(m[1]) for line in lines if (m := re.match(r"acked (\d+)", line))]
    failed = [line for line in lines if line.startswith("failed")]
    space.delete("pod", "writer", "--grace-period=1")
    stick.at_home("disks")

    assert acked == list(range(len(acked)))
    found = stick.node.read(stick.medium, timeout=300)
    expected = medium_after(len(acked))
    sums = [hashlib.sha256(data).hexdigest() for data in (found, expected)]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    told = {"cuts": CUTS * 5, "acked": len(acked), "failed": len(failed), "back": back}
    RESULTS.write_text(json.dumps({**told, "sha256": sums[0]}, indent=1) + "\n")
    assert sums[0] == sums[1]
    assert len(acked) > len(CUTS * 5)  # the first, and one after each cut
