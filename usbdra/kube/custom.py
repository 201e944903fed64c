# SPDX-License-Identifier: Apache-2.0
"""Names of our own kinds, their labels and managers: the one place for group and version.

The group is a setting (`config.Settings.group`), the version is this program's: what the CRDs of
`deploy/` serve and store. Pure; must not know what the objects hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from .types import Kind

VERSION = "v1alpha2"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "usbdra"
GRANT_SIGNER, HOST_SIGNER = "usbdra-grant", "usbdra-host"
"""Signers of the group: of grants for devices outside the cluster, and of hosts there."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Everything whose name follows from the API group."""

    group: str

    @property
    def node_device(self) -> Kind:
        """NodeUSBDevice: one device of the cluster, `nusb`."""
        return Kind(self.group, VERSION, "NodeUSBDevice", "nodeusbdevices", False)

    @property
    def device(self) -> Kind:
        """USBDevice: a device as its namespace sees it, `usb`."""
        return Kind(self.group, VERSION, "USBDevice", "usbdevices", True)

    @property
    def host(self) -> Kind:
        """USBExporterHost: a host outside the cluster whose devices are used in it."""
        return Kind(self.group, VERSION, "USBExporterHost", "usbexporterhosts", False)

    @property
    def attachment(self) -> Kind:
        """USBAttachment: a device for a virtual machine or a running pod."""
        return Kind(self.group, VERSION, "USBAttachment", "usbattachments", True)

    @property
    def machine(self) -> Kind:
        """VirtualMachine: a platform's kind, or the chart's minimal one."""
        return Kind(self.group, VERSION, "VirtualMachine", "virtualmachines", True)

    @property
    def driver(self) -> str:
        """The DRA driver's name."""
        return f"usb.{self.group}"

    def device_class(self, kind: str) -> str:
        """The DeviceClass of `devices`, `direct` or `vhci`."""
        return f"usb-{kind}.{self.group}"

    def key(self, name: str) -> str:
        """A label, annotation or taint key of ours."""
        return f"{self.group}/{name}"

    @property
    def device_key(self) -> str:
        """The label with the device's name on its claim, its template and what comes of it."""
        return self.key("device")

    @property
    def attachment_key(self) -> str:
        """The label with a USBAttachment's UID on its claim and its holder pod."""
        return self.key("attachment")

    @property
    def machine_key(self) -> str:
        """The label with a virtual machine's name on its pods, where a platform has none."""
        return self.key("virtual-machine")

    @property
    def hash_key(self) -> str:
        """The annotation with the hash of the spec that was asked for.

        The stored spec is no measure: the server adds defaults and drops fields whose gate is
        off, in silence.
        """
        return self.key("spec-hash")
