# SPDX-License-Identifier: Apache-2.0
"""Every metric of every part: name, unit, labels, and what bounds the labels. Pure.

Owns the declarations; docs/metrics.md is made from them. A label whose values are all known here
is bounded by them, and a counter with such labels alone starts with a zero for each. Any other
label says what bounds it. Must not know who counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

OK = "ok"
INTERNAL = "InternalError"
"""An error that is none of ours: our own mistake (cli/main.py says so, too)."""

API_REASONS = (
    "ApiConflict", "ApiError", "ApiExpired", "ApiForbidden", "ApiInvalid", "ApiNotFound",
    "ApiUnavailable",
)  # fmt: skip
REASONS = (
    "Ambiguous", *API_REASONS, "AttachFailed", "BadConfig", "Busy", "ClaimBusy", "DetachStuck",
    "DriverNotRestored", "EncryptionUnavailable", "ExportFailed", "Failed", "IdentityChanged",
    "InUse", "KernelUnsupported", "LinkLost", "NoFreeUSBIPPort", "NotAuthenticated", "NotFound",
    "NotPermitted", "NotRunning", "PeerClosed", "PeerRefused", "PeerTimeout", "PlugFailed",
    "ProtocolError", "Refused", "ResetFailed", "StateError", "Timeout", "UnknownStatusLayout",
    "Unreachable",
)  # fmt: skip
"""`reason` of each class of errors.py and kube/errors.py; a test compares."""
RESULTS = (OK, *REASONS, INTERNAL)

PREPARE_PHASES = ("recorded", "intended", "taken", "held", "files-written", "prepared", "total")
UNPREPARE_PHASES = ("releasing", "files-removed", "released", "forgotten", "total")
"""plugin/acts.py Step: up to each from the one before it."""
ATTACH_PHASES = (
    "connect", "tls", "clear", "authorise", "exporter.authorise", "exporter.bind",
    "exporter.hand_over", "attach", "enumerate", "settle",
)  # fmt: skip
"""types.py Attachment.timings."""
LOSSES = ("LinkEnded", "DeviceGone", "FoundAtStart")
"""agent/supervisor.py Cause."""
VERBS = ("get", "list", "watch", "create", "replace", "patch", "delete")
SPEEDS = ("low", "full", "high", "super", "unknown")
HUBS = ("high", "super")

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Kind(Enum):
    """How Prometheus is to read it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label: all its values, or in words how many there can be."""

    name: str
    values: tuple[str, ...] = ()
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. A counter's name ends in `_total`, a time's in `_seconds`, a size's in
    `_bytes`. `read` is set where the value is looked up when it is asked for."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = _SHORT
    read: bool = False


def _counter(name: str, text: str, *labels: Label) -> Family:
    return Family(name, Kind.COUNTER, text, labels)


def _times(name: str, text: str, *labels: Label) -> Family:
    return Family(name, Kind.HISTOGRAM, text, labels)


def _gauge(name: str, text: str, *labels: Label) -> Family:
    return Family(name, Kind.GAUGE, text, labels, read=True)


def _total(name: str, text: str, *labels: Label) -> Family:
    """A counter that somebody else keeps: the kernel, or another process."""
    return Family(name, Kind.COUNTER, text, labels, read=True)


_RESULT = Label("result", RESULTS)
_HUB = Label("hub", HUBS)
_LINK = (
    Label("port", bound="the node's vhci ports"),
    Label("peer", bound="one node for each port in use"),
)
_OUTSIDE = Label("host", bound="one for each USBExporterHost")
_CERTIFICATE = Label("certificate", bound="`node` of an agent, `ca` of the controller")

COMMON: Sequence[Family] = (
    _gauge(
        "usbdra_build_info",
        "Always 1; which program this is.",
        Label("version", bound="one"),
        Label("part", ("agent", "controller", "node-setup")),
    ),
    _counter(
        "usbdra_api_requests_total",
        "Requests to the API server and how they ended; a watch counts when it begins, and "
        "with its reason when it breaks.",
        Label("verb", VERBS),
        Label("result", (OK, *API_REASONS)),
    ),
    _counter("usbdra_collect_errors_total", "Facts that could not be read when asked for."),
)

AGENT: Sequence[Family] = (
    *COMMON,
    _gauge("usbdra_agent_ready", "1 once the node's slices are published, the readiness probe."),
    _gauge(
        "usbdra_visibility_info",
        "Always 1; agent.visibility of this node.",
        Label("visibility", ("Cluster", "Node")),
    ),
    _gauge(
        "usbdra_devices",
        "USB devices of this node: offered to all nodes, to this one only, or to nobody.",
        Label("speed", SPEEDS),
        Label("offer", ("cluster", "local", "none")),
    ),
    _gauge(
        "usbdra_ports",
        "vhci ports by what they are: free for claims, of claims, in foreign hands, or withheld "
        "(broken, or beyond agent.maxPorts).",
        _HUB,
        Label("state", ("free", "claims", "foreign", "withheld")),
    ),
    _gauge("usbdra_ports_published", "Ports that the scheduler may count with.", _HUB),
    _gauge(
        "usbdra_claims", "Claims on record.", Label("phase", ("preparing", "prepared", "releasing"))
    ),
    _gauge("usbdra_claims_restoring", "Prepared claims that lack a device now."),
    _gauge("usbdra_sessions", "Devices of this node that other nodes have."),
    _gauge("usbdra_links", "Links of claims of this node that run."),
    _total("usbdra_link_sent_bytes_total", "Bytes sent and acknowledged, TLS included.", *_LINK),
    _total("usbdra_link_received_bytes_total", "Bytes received, TLS included.", *_LINK),
    _total("usbdra_link_retransmits_total", "TCP segments sent again.", *_LINK),
    _gauge("usbdra_link_round_trip_seconds", "The kernel's smoothed round trip time.", *_LINK),
    _gauge("usbdra_link_encrypted", "1 where the kernel encrypts the link.", *_LINK),
    _counter(
        "usbdra_losses_total",
        "Times that a prepared claim lost a device, by what was heard first: its connection ended, "
        "its device or port was gone, or it was so at the agent's start.",
        Label("cause", LOSSES),
    ),
    _counter(
        "usbdra_reattachments_total", "Attempts to attach again what was lost, by result.", _RESULT
    ),
    _counter("usbdra_prepares_total", "Claims prepared, and attempts that failed.", _RESULT),
    _counter(
        "usbdra_prepare_failures_total",
        "Failed attempts to prepare by the last phase that was over; `begin` when none was.",
        Label("reached", ("begin", *PREPARE_PHASES[:-1], "releasing")),
    ),
    _times(
        "usbdra_prepare_duration_seconds",
        "Time of each phase of a claim's preparation, and of all.",
        Label("phase", PREPARE_PHASES),
    ),
    _counter("usbdra_unprepares_total", "Claims given back, and attempts that failed.", _RESULT),
    _times(
        "usbdra_unprepare_duration_seconds",
        "Time of each phase of giving a claim back, and of all.",
        Label("phase", UNPREPARE_PHASES),
    ),
    _times(
        "usbdra_attach_duration_seconds",
        "Time of each phase of attaching a device of another node; the other node's "
        "own, `exporter.*`, are in `authorise`.",
        Label("phase", ATTACH_PHASES),
    ),
    _counter(
        "usbdra_grants_total",
        "Requests of other nodes for devices of this one, by answer.",
        _RESULT,
    ),
    _total("usbdra_slice_writes_total", "ResourceSlices written."),
    _total("usbdra_slice_deletes_total", "ResourceSlices deleted."),
    _total("usbdra_slice_retries_total", "Attempts to publish that failed and are tried again."),
    _gauge(
        "usbdra_certificate_expiry_timestamp_seconds", "When the certificate ends.", _CERTIFICATE
    ),
    _gauge("usbdra_certificate_lifetime_seconds", "How long it holds in all.", _CERTIFICATE),
    _gauge("usbdra_exporter_up", "1 when the exporter's process of this pod answers."),
    _total("usbdra_exporter_connections_total", "Connections that the exporter accepted."),
    _total(
        "usbdra_exporter_dropped_total",
        "Connections that the exporter closed unheard: over a limit, or not of allowedCIDRs.",
        Label("cause", ("OverLimit", "Network")),
    ),
    _total(
        "usbdra_exporter_failed_total", "Connections that ended in an error: handshake, message."
    ),
)

_QUEUE = Label("queue", ("devices", "attachments"))

CONTROLLER: Sequence[Family] = (
    *COMMON,
    _gauge("usbdra_leader", "1 in the controller that leads."),
    _counter(
        "usbdra_part_restarts_total",
        "Parts of the controller that failed and were made anew.",
        Label("part", ("devices", "certificates", "outside", "attachments")),
    ),
    _gauge("usbdra_queue_depth", "Objects that wait to be looked at, or are looked at.", _QUEUE),
    _gauge("usbdra_queue_failing", "Objects whose last look failed.", _QUEUE),
    _counter(
        "usbdra_queue_results_total",
        "Looks at objects by how they ended; all but `ok` are tried again.",
        _QUEUE,
        _RESULT,
    ),
    _times("usbdra_queue_duration_seconds", "Time of one look at one object.", _QUEUE),
    _gauge(
        "usbdra_published_devices",
        "Devices in ResourceSlices by who sees them; of the leader.",
        Label("reach", ("Cluster", "Node", "Local")),
    ),
    _gauge("usbdra_publishing_nodes", "Nodes with slices of this driver; of the leader."),
    _gauge("usbdra_node_devices", "NodeUSBDevices; of the leader."),
    _gauge("usbdra_assigned_devices", "NodeUSBDevices that are assigned; of the leader."),
    _gauge(
        "usbdra_outside_hosts",
        "Hosts outside the cluster by whether they answer; of the leader.",
        Label("state", ("ready", "silent")),
    ),
    _gauge(
        "usbdra_outside_host_ready",
        "1 for a host outside the cluster that answers; of the leader.",
        _OUTSIDE,
    ),
    _gauge(
        "usbdra_outside_host_seen_timestamp_seconds",
        "When a host outside the cluster answered this leader last, a minute ago at the most while "
        "it is well; of an older `usbdra serve` 10 s.",
        _OUTSIDE,
    ),
    _gauge(
        "usbdra_outside_host_devices",
        "Devices that a host outside the cluster offers, or offered when it answered last.",
        _OUTSIDE,
    ),
    _gauge(
        "usbdra_outside_host_certificate_expiry_timestamp_seconds",
        "When the certificate of a host outside the cluster ends, as it showed it last.",
        _OUTSIDE,
    ),
    _counter(
        "usbdra_outside_looks_total",
        "Requests to hosts outside the cluster for what they have, and how they ended.",
        _RESULT,
    ),
    _gauge(
        "usbdra_certificate_expiry_timestamp_seconds", "When the certificate ends.", _CERTIFICATE
    ),
    _gauge("usbdra_certificate_lifetime_seconds", "How long it holds in all.", _CERTIFICATE),
)

MODULES = ("usbip_core", "usbip_host", "vhci_hcd", "tls", "inet_diag", "tcp_diag")
MODULE_STATES = (
    "loaded", "built in", "not loaded", "not loaded and forbidden", "missing",
    "not loaded, perhaps loadable",
)  # fmt: skip

NODE_SETUP: Sequence[Family] = (
    *COMMON,
    _gauge("usbdra_node_prepared", "1 when all modules that are needed are loaded."),
    _gauge("usbdra_node_labelled", "1 when the node's label says what is true."),
    _gauge(
        "usbdra_node_state",
        "1 for the reason that holds.",
        Label("reason", ("ModulesLoaded", "ModulesMissing", "ModulesForbidden", "ModulesUnloaded")),
    ),
    _gauge(
        "usbdra_module_state",
        "1 for the state that a kernel module is in.",
        Label("module", MODULES),
        Label("state", MODULE_STATES),
    ),
)

PARTS: Mapping[str, Sequence[Family]] = {
    "agent": AGENT,
    "controller": CONTROLLER,
    "node-setup": NODE_SETUP,
}


def phases(took_ms: Mapping[str, float], known: Iterable[str]) -> dict[str, float]:
    """Milliseconds by phase as seconds, of the phases that are known."""
    return {phase: took_ms[phase] / 1e3 for phase in known if phase in took_ms}
