# SPDX-License-Identifier: Apache-2.0
"""Where vhci_hcd keeps its files and its root hubs.

Owns paths only: where the platform device number 0 is, how many controllers there are, where a
device on a given port will appear. Must not attach or detach anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from usbdra import kmod
from usbdra.errors import KernelUnsupported
from usbdra.types import BusId, Hub, Speed

MODULE = "vhci_hcd"
PLATFORM = "sys/devices/platform"
_PREFIX = "vhci_hcd."
_MISSING = (
    "vhci_hcd is not loaded ({place}): load it with `modprobe vhci-hcd` to use devices of other "
    "machines here"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device on one port appears: `devpath` as uevents spell it, without `/sys`."""

    busid: BusId
    devpath: str


def control_directory(root: Path) -> Path:
    """The directory with `status*`, `attach` and `detach` of all controllers: number 0.

    Kernels before 4.13 called the only one `vhci_hcd`; those are not supported. Raises
    KernelUnsupported when there is none, and while the module is loaded or unloaded: 6.1 crashes
    when a status is read before its controller is made (docs/kernel-facts.md).
    """
    if not kmod.settled(root, MODULE):
        raise KernelUnsupported("vhci_hcd is being loaded or unloaded: try again in a moment")
    first = root / PLATFORM / f"{_PREFIX}0"
    if not (first / "status").exists():
        raise KernelUnsupported(_MISSING.format(place=first))
    return first


def status_files(directory: Path) -> int:
    """How many of `status`, `status.1`, `status.2` ... there are, with no gap between."""
    count = 1
    while (directory / f"status.{count}").exists():
        count += 1
    return count


def place_of(root: Path, controller: int, hub: Hub, root_hub_port: int) -> Place:
    """Where the device on this port of this controller's hub will be.

    The root hubs of a controller are told apart by their speed, not by their order. Raises
    KernelUnsupported when the controller has no root hub of that kind.
    """
    parent = root / PLATFORM / f"{_PREFIX}{controller}"
    for root_hub in sorted(parent.glob("usb*")):
        try:
            speed = Speed.from_sysfs((root_hub / "speed").read_text())
        except OSError:
            continue
        if speed is not Speed.UNKNOWN and Hub.for_speed(speed) is hub:
            busid = BusId(f"{root_hub.name.removeprefix('usb')}-{root_hub_port}")
            below = root_hub.relative_to(root / "sys")
            return Place(busid, f"/{below}/{busid}")
    raise KernelUnsupported(f"{parent} has no root hub for {hub.value}-speed devices")
