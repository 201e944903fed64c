# SPDX-License-Identifier: Apache-2.0
"""The fake `platform/vhci_hcd.N`: root hubs, status files of any layout, imported devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fakes.sysfs import FakeDevice, SysTree

S1_HEADER = "hub port sta spd dev      sockfd local_busid\n"


class Vhci:
    """`platform/vhci_hcd.0` with its files, and one platform device per further controller."""

    def __init__(
        self, tree: SysTree, controllers: int, high: int, super_: int, first_bus: int
    ) -> None:
        self.tree = tree
        self.high, self.super_ = high, super_
        self.path = tree.sys / "devices/platform/vhci_hcd.0"
        self.hubs: list[tuple[FakeDevice, FakeDevice]] = []
        for number in range(controllers):
            controller = tree.controller(f"vhci_hcd.{number}")
            bus = first_bus + 2 * number
            self.hubs.append((controller.root_hub(bus), controller.root_hub(bus + 1, "5000")))
            self.status(self.free_rows(number), number)
        (self.path / "nports").write_text(f"{controllers * (high + super_)}\n")
        for name in ("attach", "detach"):
            (self.path / name).write_text("")

    def free_rows(self, controller: int) -> str:
        start = controller * (self.high + self.super_)
        rows = [
            f"{'hs' if i < self.high else 'ss'}  {start + i:04d} 004 000 00000000 000000 0-0\n"
            for i in range(self.high + self.super_)
        ]
        return S1_HEADER + "".join(rows)

    def status(self, text: str, controller: int = 0) -> None:
        """Write the whole text of `status` (or `status.N`), of any layout."""
        name = "status" if controller == 0 else f"status.{controller}"
        (self.path / name).write_text(text)

    def plug(self, port: int, *, vendor: str, product: str, speed: str = "480") -> FakeDevice:
        """The imported device that sits on this port, below the root hub of its speed; the
        port's row is set to 006 with its local busid."""
        per = self.high + self.super_
        controller, offset = divmod(port, per)
        is_super = offset >= self.high
        hub = self.hubs[controller][is_super]
        device = hub.plug(
            (offset - self.high if is_super else offset) + 1,
            vendor=vendor,
            product=product,
            speed=speed,
        )
        name = "status" if controller == 0 else f"status.{controller}"
        lines = (self.path / name).read_text().splitlines(keepends=True)
        kind, code = ("ss", 5) if is_super else ("hs", 3)
        lines[1 + offset] = f"{kind}  {port:04d} 006 {code:03d} 00010002 000011 {device.busid}\n"
        self.status("".join(lines), controller)
        return device
