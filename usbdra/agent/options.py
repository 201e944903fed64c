# SPDX-License-Identifier: Apache-2.0
"""What an agent is told at its start. Plain values; checks that need the node are made later."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from usbdra.discovery.policy import Policy
from usbdra.transport.ktls import Encryption
from usbdra.types import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """One agent of one node. `pod_uid` tells two agents of an upgrade apart."""

    node: NodeName
    pod_uid: str
    group: str = "virtualization.deckhouse.io"
    port: int = 3241
    listen: tuple[str, ...] = ("0.0.0.0", "::")  # noqa: S104 a server's default
    allowed_cidrs: tuple[str, ...] = ()
    encryption: Encryption = Encryption.REQUIRED
    exporter: str = "inprocess"
    """Who listens on the network: `process`, the exporter's container, or `inprocess`, we do."""
    exporter_socket: Path = Path("/run/usbdra-exporter/agent.sock")
    """Where the exporter's process finds us, and no one else of the node does."""
    exporter_uid: int = 64241
    """The user that the exporter's process runs as."""
    visibility: str = "Cluster"
    assignment: str = "Off"
    """Whether NodeUSBDevices say which namespace may use a device: Off (nobody asks them),
    Optional (a device without assignment is everybody's), Required (it is nobody's)."""
    link_report_seconds: int = 60
    """Between two looks at what links carry, for their claims' status; 0 for none."""
    resets: bool = False
    """Whether a device is reset when its NodeUSBDevice asks for it; the kind must be there."""
    policy: Policy = field(default_factory=Policy)
    max_ports: int | None = None
    """At most so many ports of each hub; None for all that the kernel has."""
    root: Path = Path("/")
    pki_dir: Path = Path("/etc/usbdra/pki")
    """With a signer: where the sets of pki/sets.py are kept. Without: tls.crt, tls.key, ca.crt."""
    signer: str = ""
    """Signer of the node's certificate; "" when its files are laid down by other hands."""
    namespace: str = ""
    """The agent's own namespace: where the trust bundle is."""
    trust_bundle: str = "usbdra-trust"
    certificate_hours: int = 24
    run_dir: Path = Path("/run/usbdra")
    state_dir: Path = Path("/var/lib/usbdra")
    kubelet_dir: Path = Path("/var/lib/kubelet")
    cdi_dir: Path = Path("/var/run/cdi")
    claims_dir: Path = Path("/dev/usbdra")
    machines: bool = False
    """Whether devices are plugged into virtual machines of this node (USBAttachments)."""
    metrics: tuple[str, int] | None = None
    """Address and TCP port of /metrics, None for no such listener. On an address that is not the
    host's own loopback with TLS, for who may `get` the path /metrics."""
    host_proc: Path | None = None
    """Where the host's own /proc is, to change running containers; None: they are left alone."""
    outside_hosts: bool = False
    """Whether devices of hosts outside the cluster (USBExporterHosts) may be used here."""
    kubeconfig: Path | None = None
    """None: the pod's service account."""
    fault_file: Path | None = None
    """For the cluster bed: see agent/fault.py."""

    @property
    def driver(self) -> str:
        """The DRA driver name."""
        return f"usb.{self.group}"
