# SPDX-License-Identifier: Apache-2.0
"""The checks before a reset."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.unit.slices.samples import offer
from usbdra.agent.resetting import DeviceReset, usbfs_reset
from usbdra.discovery.snapshot import Snapshot
from usbdra.errors import DeviceBusy, HostInUse, NotFound, ResetFailed
from usbdra.state.claims import ClaimRef
from usbdra.types import ClaimUid, DeviceName

STICK = DeviceName("usb-0951-1666-60a44c413fae")
CLAIM = ClaimRef("lab", "c", ClaimUid("u"))


class Node:
    def __init__(self, **found: Any) -> None:
        self.reset_nodes: list[Path] = []
        self.error: OSError | None = None
        self.reset = DeviceReset(
            Path("/root"),
            lambda: Snapshot(offers=(offer(),)),
            over_network=lambda busid: found.get("over_network"),
            here=lambda name: found.get("here"),
            host_use=lambda busid: found.get("host_use"),
            reset=self._reset,
        )

    def _reset(self, node: Path) -> None:
        self.reset_nodes.append(node)
        if self.error is not None:
            raise self.error


async def test_a_free_device_is_reset_by_its_node() -> None:
    node = Node()
    await node.reset(STICK, False)
    assert node.reset_nodes == [Path("/root/dev/bus/usb/001/005")]


@pytest.mark.parametrize("found", [{"over_network": "node b"}, {"here": CLAIM}])
async def test_a_device_in_use_is_reset_by_force_only(found: dict[str, Any]) -> None:
    node = Node(**found)
    with pytest.raises(DeviceBusy, match=r"node b|claim lab/c"):
        await node.reset(STICK, False)
    assert node.reset_nodes == []
    await node.reset(STICK, True)
    assert len(node.reset_nodes) == 1


async def test_what_the_host_uses_is_never_reset() -> None:
    node = Node(host_use="disk mounted on /")
    with pytest.raises(HostInUse, match="mounted on /"):
        await node.reset(STICK, True)
    assert node.reset_nodes == []


async def test_a_disk_that_a_claim_of_this_node_has_mounted_is_the_claims() -> None:
    node = Node(host_use="disk mounted on /data", here=CLAIM)
    await node.reset(STICK, True)
    assert len(node.reset_nodes) == 1


async def test_failures_name_the_device() -> None:
    node = Node()
    with pytest.raises(NotFound, match="usb-other is not plugged into this node"):
        await node.reset(DeviceName("usb-other"), False)
    node.error = OSError(errno.ENODEV, "No such device")
    with pytest.raises(ResetFailed, match=f"{STICK} did not come back .*No such device"):
        await node.reset(STICK, False)


def test_what_is_no_device_is_no_reset(tmp_path: Path) -> None:
    file = tmp_path / "node"
    file.write_text("")
    with pytest.raises(OSError, match="ioctl"):
        usbfs_reset(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        usbfs_reset(tmp_path / "link")
