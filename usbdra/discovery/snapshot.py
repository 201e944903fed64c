# SPDX-License-Identifier: Apache-2.0
"""The node's devices at one moment, and how a person's word finds one of them.

Owns a plain value: what was read, what policy says of it, what could not be read. Must not read
anything itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from usbdra.discovery.policy import identity_changed
from usbdra.errors import Ambiguous, IdentityChanged, NotFound, Refused
from usbdra.types import BusId, DeviceName, Offer, UsbDevice


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All devices (hubs and imported ones too) and the offers among them, both by place.

    `skipped` maps the busid of a device that could not be read to the reason.
    """

    devices: tuple[UsbDevice, ...] = ()
    offers: tuple[Offer, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    def find(self, key: str) -> Offer:
        """The offer that `key` means: its name, its busid, or its serial.

        Raises NotFound (with what comes close), Ambiguous for a serial that several have, and
        Refused for a device that is there and never offered.
        """
        for offer in self.offers:
            if key in (offer.name, offer.device.busid):
                return offer
        alike = [offer for offer in self.offers if offer.device.serial == key]
        if len(alike) > 1:
            raise Ambiguous(key, tuple(offer.name for offer in alike))
        if alike:
            return alike[0]
        raise self._not_found(key)

    def require_face(self, name: DeviceName) -> None:
        """Raises IdentityChanged when the port in use as `name` has another device now (R32)."""
        for offer in self.offers:
            if offer.reason == identity_changed(name):
                device = offer.device
                raise IdentityChanged(
                    f"device {name} came back as {device.vendor_id}:{device.product_id} at "
                    f"{device.busid}, which is {offer.name}"
                )

    def by_busid(self, busid: BusId) -> UsbDevice | None:
        """The device at this place, hubs and imported ones included."""
        return next((d for d in self.devices if d.busid == busid), None)

    def _not_found(self, key: str) -> NotFound | Refused:
        device = self.by_busid(BusId(key))
        if device is not None:
            kind = "a hub" if device.is_hub else "imported from another machine"
            return Refused(f"device {key} is {kind} and never offered")
        if key in self.skipped:
            return NotFound(f"device {key} could not be read: {self.skipped[key]}")
        words = {w for o in self.offers for w in (o.name, o.device.busid, o.device.serial) if w}
        from difflib import get_close_matches

        close = get_close_matches(key, sorted(words), 3, 0.6)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        return NotFound(f"no device {key!r} on this node{hint}")
