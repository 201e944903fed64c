# SPDX-License-Identifier: Apache-2.0
"""The host's interface drivers, bound and unbound by writes, on a fake tree."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class HostDrivers:
    """Interface drivers of a tree: `refuse` maps `bind` or `unbind` to an errno."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refuse: dict[str, int] = {}
        self.log: list[str] = []

    def bind(self, driver_dir: bytes, interface: bytes, /) -> None:
        path, driver = self._look("bind", driver_dir, interface)
        names = [path]
        if driver == "cdc_acm":  # its probe of the first interface takes the second as well
            names.append(path.with_name(path.name[:-1] + "1"))
        for name in names:
            (name / "driver").symlink_to(os.fsdecode(driver_dir))

    def unbind(self, driver_dir: bytes, interface: bytes, /) -> None:
        path, driver = self._look("unbind", driver_dir, interface)
        if not (path / "driver").is_symlink():
            raise OSError(errno.ENODEV, "unbind")
        for name in path.parent.glob(f"{path.name[:-1]}?") if driver == "cdc_acm" else [path]:
            (name / "driver").unlink()

    def _look(self, what: str, driver_dir: bytes, interface: bytes) -> tuple[Path, str]:
        driver = os.fsdecode(driver_dir).rpartition("/")[2]
        self.log.append(f"{what} {driver} {interface.decode()}")
        if what in self.refuse:
            raise OSError(self.refuse[what], os.strerror(self.refuse[what]))
        link = self.root / "sys/bus/usb/devices" / interface.decode()
        return link.resolve(strict=True), driver
