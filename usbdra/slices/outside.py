# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices for the devices of a host outside the cluster, which publishes none itself.

Owns the form of its pool, `usb-outside/<host>`: a name that no node's pool can have, in slices
that belong to the host's object and are seen by every node that can import. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from usbdra.errors import ConfigError
from usbdra.slices import limits
from usbdra.slices.attributes import Facts, Value, described, typed_attributes
from usbdra.slices.build import (
    Manifest,
    PoolForm,
    Taint,
    every_importer,
    label_selector,
    owned,
    pool_slices,
    with_taints,
)
from usbdra.types import DeviceName, Hub, RemoteDevice, Speed, outside_node

MAX_HOST_LENGTH = 50
"""Letters of a host's name, so that `outside/<host>` is a value of an attribute as it is."""


@dataclass(frozen=True, slots=True)
class HostOwner:
    """A host's object: its slices carry its label, and go with it."""

    host: str
    uid: str
    driver: str
    api_version: str
    kind: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels that its slices carry and are found by."""
        return labels_of(self.host, self.driver)

    @property
    def selector(self) -> str:
        """The label selector of exactly its slices."""
        return selector_of(self.host, self.driver)

    def own(self, manifest: Manifest) -> Manifest:
        """The manifest with labels and owner reference."""
        reference = {
            "apiVersion": self.api_version, "kind": self.kind, "name": self.host, "uid": self.uid,
        }  # fmt: skip
        return owned(manifest, self.labels, reference)


def labels_of(host: str, driver: str) -> dict[str, str]:
    """The labels of a host's slices."""
    return {"app.kubernetes.io/managed-by": "usbdra", f"{driver}/host": host}


def selector_of(host: str, driver: str) -> str:
    """The label selector of a host's slices."""
    return label_selector(labels_of(host, driver))


def check_host(name: str) -> None:
    """Raises ConfigError for a name that no host outside can have."""
    if not limits.is_dns_label(name) or len(name) > MAX_HOST_LENGTH:
        raise ConfigError(
            f"{name!r} is not a host's name: lower-case letters, digits and -, at most "
            f"{MAX_HOST_LENGTH}"
        )


def build_outside(
    host: str,
    group: str,
    devices: Iterable[RemoteDevice],
    taints: Mapping[DeviceName, Sequence[Taint]],
) -> list[Manifest]:
    """The slices of a host, in name order.

    devices: what it lists, those in use included: being in use is the claim's affair. A device
    without a name, with one that no slice takes or one seen before is left out.
    """
    entries: dict[DeviceName, Manifest] = {}
    for device in sorted(devices, key=lambda one: (one.name or "", one.busid)):
        name = device.name
        if name is not None and name not in entries and limits.is_dns_label(name):
            entry = {"name": name, "attributes": typed_attributes(_attributes(device, host))}
            entries[name] = with_taints(entry, taints.get(name, ()))
    form = PoolForm(f"usb-{outside_node(host)}", f"usb.{group}")
    return pool_slices(form, list(entries.values()), every_importer(group))


def _attributes(device: RemoteDevice, host: str) -> dict[str, Value]:
    """As of a node's devices, as far as the protocol tells."""
    speed = Speed.from_code(device.speed_code)
    facts = Facts(
        name=device.name,
        node=outside_node(host),
        speed=speed,
        speed_class=None if speed is Speed.UNKNOWN else Hub.for_speed(speed).value,
        interface_classes=frozenset(one[0] for one in device.interfaces),
    )
    return described(device, facts)
