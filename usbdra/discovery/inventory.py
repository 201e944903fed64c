# SPDX-License-Identifier: Apache-2.0
"""The one snapshot of a node's devices: made by a scan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from usbdra.discovery import hostuse, names, tree
from usbdra.discovery.policy import Policy, is_candidate, offer
from usbdra.discovery.snapshot import Snapshot
from usbdra.types import DeviceName, UsbDevice

if TYPE_CHECKING:
    from pathlib import Path


def scan(
    root: str | Path = "/",
    *,
    node: str,
    policy: Policy | None = None,
    ambiguous: Set[names.Identity] = frozenset(),
    held: Mapping[str, DeviceName] | None = None,
) -> Snapshot:
    """Look once at everything below `root`; an incomplete device is taken as it is.

    `ambiguous` and `held` as for `names.assign_names`. Raises OSError only when the list of
    devices itself cannot be had.
    """
    policy = policy or Policy()
    found = tree.enumerate_devices(root)
    devices = sorted((r.device for r in found.readings), key=place_order)
    candidates = [d for d in devices if is_candidate(d)]
    naming = names.assign_names(candidates, node=node, ambiguous=ambiguous, held=held)
    holders = hostuse.find_holders(root, candidates)
    offers = (offer(policy, d, naming.names[d.syspath], holders.get(d.busid)) for d in candidates)
    return Snapshot(tuple(devices), tuple(o for o in offers if o is not None), found.skipped)


def place_order(device: UsbDevice) -> tuple[int, ...]:
    """Sorts 1-2 before 1-10, and a hub before what hangs on it."""
    return device.busnum, *(int(n) for n in re.findall(r"[0-9]+", device.busid.partition("-")[2]))
