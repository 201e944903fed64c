# SPDX-License-Identifier: Apache-2.0
"""The bed of the kernel tests: nodes a and b with the project's wheel, and test files.

Owns what these two nodes carry. Must not contain tests.
"""

from tests.bed.bed import Bed, NodeSpec
from tests.bed.node import Node
from tests.bed.rootfs import RootSpec
from tests.bed.wheel import project_image, tests_image

MEMORY = 768


class KernelBed(Bed):
    """Two nodes; each exports and imports. Kernels are Debian series, 6.12 and 6.1.

    bare leaves the wheel out, for work on the bed itself. Both nodes have these packages (Debian's)
    and parameters (of the kernel).
    """

    def __init__(
        self,
        a: str = "6.12",
        b: str = "6.1",
        *,
        bare: bool = False,
        detached: bool = False,
        packages: tuple[str, ...] = (),
        parameters: tuple[str, ...] = (),
    ) -> None:
        drives = []
        if not bare:
            drives.append(("usbdra", project_image("cluster"), "/opt/usbdra"))
            drives.append(("tests", tests_image(), "/opt/tests"))
        specs = [
            NodeSpec(
                name,
                kernel,
                RootSpec(packages),
                memory=MEMORY,
                drives=tuple(drives),
                parameters=parameters,
            )
            for name, kernel in (("a", a), ("b", b))
        ]
        super().__init__(specs, detached=detached)

    @property
    def a(self) -> Node:
        """The first node."""
        return self["a"]

    @property
    def b(self) -> Node:
        """The second node."""
        return self["b"]


def tidy(bed: Bed) -> None:
    """Nothing attached, nothing bound, no gadget, no cut: how every test finds the nodes."""
    for name, node in bed.nodes.items():
        bed.restore(name)
        node.call("usb.detach_all")
        node.call("usb.release_all")
        node.call("gadget.remove_all")
