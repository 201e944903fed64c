# SPDX-License-Identifier: Apache-2.0
"""Resets a USB device of this node, as pulling and plugging it would, without moving it.

Owns the checks before it: what the host itself uses is never reset, what a claim uses only by
force. Must not know who asked.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

from usbdra.discovery.snapshot import Snapshot
from usbdra.errors import DeviceBusy, HostInUse, NotFound, ResetFailed
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import ClaimRef
from usbdra.types import BusId, DeviceName, Offer

log = logging.getLogger(__name__)

_USBDEVFS_RESET = 0x5514  # include/uapi/linux/usbdevice_fs.h: _IO('U', 20)

Reset = Callable[[Path], None]
"""Resets the device whose node this is, and returns when it answers again. Raises OSError."""


def usbfs_reset(node: Path) -> None:
    """By usbfs: the kernel's usb_reset_device, which tells the drivers before and after."""
    fd = os.open(node, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.ioctl(fd, _USBDEVFS_RESET)
    finally:
        os.close(fd)


class DeviceReset:
    """Call it with a device's name. `over_network` and `here` say who has the device, if anybody;
    `host_use` names what the host itself uses it for."""

    def __init__(
        self,
        root: Path,
        snapshot: Callable[[], Snapshot],
        *,
        over_network: Callable[[BusId], str | None],
        here: Callable[[DeviceName], ClaimRef | None],
        host_use: Callable[[BusId], str | None],
        reset: Reset = usbfs_reset,
    ) -> None:
        self._root = root
        self._snapshot = snapshot
        self._over_network = over_network
        self._here = here
        self._host_use = host_use
        self._reset = reset

    async def __call__(self, name: DeviceName, force: bool) -> None:
        """Reset the device; it is back when this returns.

        Raises NotFound, HostInUse, DeviceBusy (unless `force`) and ResetFailed.
        """
        offer = self._offer(name)
        device = offer.device
        if not force:
            holder = self._over_network(device.busid) or self._here(name)
            if holder is not None:
                raise DeviceBusy(name, str(holder))
        used = await in_thread(self._host_use, device.busid)
        if used is not None and self._here(name) is None:
            raise HostInUse(device.busid, used)
        try:
            await in_thread(self._reset, self._root / device.node_path.lstrip("/"))
        except OSError as error:
            raise ResetFailed(
                f"device {name} did not come back from its reset ({error.strerror or error}); pull "
                "it and plug it in again"
            ) from error
        log.info("device was reset", extra={"device": name, "busid": device.busid, "force": force})

    def _offer(self, name: DeviceName) -> Offer:
        for offer in self._snapshot().offers:
            if offer.name == name:
                return offer
        raise NotFound(f"device {name} is not plugged into this node")
