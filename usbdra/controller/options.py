# SPDX-License-Identifier: Apache-2.0
"""What a controller is told at its start. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from usbdra.controller.issuing import CertificateSettings
from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.controller.web.options import WebOptions
from usbdra.kube.custom import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """How devices get into virtual machines."""

    image: str
    """What holder pods run: the image of this program."""
    pull_policy: str = "IfNotPresent"
    label: str = ""
    """The label of machines' pods with the machine's name; "" for <group>/virtual-machine."""
    socket: str = ""
    """VOLUME/PATH of the QMP socket in pods that have no annotation."""
    mirror: bool = False
    """Whether there is a kind VirtualMachine whose spec.usbDevices is to be followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """One controller. Times in seconds."""

    identity: str
    """Who holds the Lease: different for every process."""
    namespace: str
    """Where the Lease, and secrets of the controller, are."""
    group: str = "virtualization.deckhouse.io"
    lease: str = "usbdra-controller"
    absent_grace: float = 600.0
    """How long a NodeUSBDevice that is absent and not assigned is kept."""
    workers: int = 32
    """Devices worked on at once: requests under way, so what an API server that takes 50 ms for a
    write still lets through is 600 a second."""
    health: tuple[str, int] = ("", 8081)
    """Address and TCP port of /livez and /readyz; "" for every address."""
    metrics: tuple[str, int] | None = None
    """Address and TCP port of /metrics; None for no such listener."""
    certificates: CertificateSettings | None = None
    """None: nodes get their certificates elsewhere."""
    machines: MachineSettings | None = None
    """None: USBAttachments are nobody's work."""
    web: WebOptions | None = None
    """None: no page is served."""
    outside: OutsideSettings | None = None
    """None: hosts outside the cluster are nobody's work."""
    kubeconfig: Path | None = None
    """None: the pod's service account."""

    @property
    def contract(self) -> Contract:
        """Names that follow from the group."""
        return Contract(self.group)
