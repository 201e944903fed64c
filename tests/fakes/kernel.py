# SPDX-License-Identifier: Apache-2.0
"""A kernel that reacts: vhci_hcd and usbip-host over a fake sysfs tree.

`kernel.vhci` and `kernel.stub` have the functions of `_native.vhci` and `_native.stub` (and
`write` of `_native.sysfs`) and change the tree, send uevents and hold sockets as the real ones
do; what is written there reads back through the real native parsers. Example:

    async with FakeKernel(tmp_path) as kernel:
        driver = VhciDriver(kernel.root, native=kernel.vhci)
        stick = kernel.stub.plug(4, serial=b"A1")          # a device of this host
        kernel.vhci.remote = Remote(product="5591")        # what a peer's device will look like
        kernel.vhci.enumeration = "silent"                 # or it never answers (R07)
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes.kernel_stub import FakeStub
from tests.fakes.kernel_vhci import FakeVhci, Remote
from tests.fakes.sysfs import SysTree
from tests.fakes.uevents import FakeUevents
from usbdra.discovery.uevent import UeventHub

__all__ = ["FakeKernel", "FakeStub", "FakeVhci", "Remote"]


class FakeKernel:
    """Both modules loaded, one USB 2 controller with a hub, `controllers` x (high + super_)."""

    def __init__(self, root: Path, *, controllers: int = 1, high: int = 8, super_: int = 8) -> None:
        self.root = root
        self.tree = SysTree(root)
        self.source = FakeUevents()
        self.events = UeventHub(self.source)
        self.vhci = FakeVhci(self.tree, self.source, controllers, high, super_)
        self.stub = FakeStub(self.tree, self.source)

    async def __aenter__(self) -> Self:
        self.events.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.vhci.close()
        self.stub.close()
        self.events.close()

    @property
    def sockets(self) -> int:
        """Connections that the kernel holds now, on both sides."""
        return self.vhci.sockets + self.stub.sockets
