# SPDX-License-Identifier: Apache-2.0
"""USB devices that a test plugs into nodes, and gets into the cluster's view.

Owns the plugged devices of one test. How a node makes one is `tests/bed/guest/gadget.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.bed.node import Node
from tests.cluster.bed import ClusterBed

# what a host driver makes of each kind, by the names of guest/usb.py
_CHILDREN = {"storage": "disks", "serial": "ttys", "keyboard": "inputs"}


@dataclass(frozen=True)
class Gadget:
    """A plugged device: where, its serial, and the image file in the node if it is a stick."""

    node: Node
    serial: str

    @property
    def medium(self) -> str:
        """Path of a stick's medium in its node."""
        return f"/run/gadget-disks/{self.serial}.img"

    def sha256(self) -> str:
        """Sum of a stick's medium, read in its node past the USB stack."""
        return self.node.sh(f"sha256sum {self.medium}").split()[0]

    def fill(self) -> None:
        """Random bytes onto a stick's medium; the host's caches must not have read it before."""
        size = self.node.sh(f"stat -c %s {self.medium}")
        self.node.sh(f"head -c {size} /dev/urandom | dd of={self.medium} conv=notrunc bs=1M")

    def at_home(self, child: str) -> dict[str, Any]:
        """Wait until its own node's driver has it, with its children; the kernel's facts."""
        facts: dict[str, Any] = self.node.call("usb.wait", self.serial, child=child)
        return facts


class Gadgets:
    """The devices of one test."""

    def __init__(self, bed: ClusterBed) -> None:
        self._bed = bed
        self._plugged: list[Gadget] = []

    def plug(self, node: str, serial: str, kind: str = "storage", **options: Any) -> Gadget:
        """Plug a device in and return when the API has it.

        Args:
            serial: its serial number, unique in the cluster.
            kind: storage, serial or keyboard.
            options: of guest/gadget.py: speed (low, full, high, super), size_mib, vendor,
                product_id, product, ...
        """
        machine = self._bed.machine(node)
        machine.call(f"gadget.{kind}", serial, serialnumber=serial, **options)
        gadget = Gadget(machine, serial)
        self._plugged.append(gadget)
        gadget.at_home(_CHILDREN[kind])
        self.published(serial)
        return gadget

    def published(self, serial: str, *, tainted: bool = True) -> dict[str, Any]:
        """Wait until a slice has the device; its attributes as the driver published them.

        A device that is new to the cluster bears a taint until the controller has written down
        that it is nobody's: the scheduler passes it over so long. With `tainted` false that is
        waited for as well.
        """

        def find(slices: list[Any]) -> dict[str, Any] | None:
            for item in slices:
                for device in item.spec.devices or []:
                    if device.taints and not tainted:
                        continue
                    values = {name: _value(v) for name, v in (device.attributes or {}).items()}
                    if values.get("serial") == serial:
                        return {"device": device.name, "pool": item.spec.pool.name, **values}
            return None

        found: dict[str, Any] = self._bed.api.wait(
            self._bed.api.resource.list_resource_slice, find, f"{serial} is in a slice", 60
        )
        return found

    def remove_all(self) -> None:
        """Pull everything out."""
        for gadget in self._plugged:
            gadget.node.call("gadget.remove", gadget.serial)
        self._plugged.clear()


def _value(attribute: Any) -> Any:
    values = attribute.to_dict().values()
    return next((value for value in values if value is not None), None)
