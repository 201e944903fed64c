# SPDX-License-Identifier: Apache-2.0
"""`usbdra agent`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from usbdra.cli.group import TCP_PORT, common_options
from usbdra.cli.invocation import Invocation, pass_invocation

_BOOL = click.Choice(("true", "false"))


@click.command("agent")
@common_options(())
@click.option("--node", envvar="NODE_NAME", metavar="NAME", help="This node's name.")
@click.option("--pod-uid", envvar="POD_UID", default="", help="UID of the agent's own pod.")
@click.option("--group", metavar="GROUP", help="API group; the driver is usb.GROUP.")
@click.option("--port", type=TCP_PORT, help="TCP port of the exporter, on every node the same.")
@click.option("--assignment", type=click.Choice(("Off", "Optional", "Required")), default="Off")
@click.option("--link-report-seconds", type=click.IntRange(0), default=60, show_default=True)
@click.option("--resets", type=_BOOL, default="false", help="Reset what NodeUSBDevices ask for.")
@click.option("--visibility", type=click.Choice(("Cluster", "Node")))
@click.option("--forward-low-speed", type=_BOOL, help="Let 1.5 and 12 Mbit/s cross nodes.")
@click.option(
    "--max-ports", type=click.IntRange(0), help="Ports of each hub to use at most; 0 for all."
)
@click.option("--pki", type=click.Path(path_type=Path), help="ca.crt, tls.crt and tls.key.")
@click.option("--signer", default="", metavar="NAME", help="Signer of this node's certificate.")
@click.option("--namespace", envvar="POD_NAMESPACE", default="", help="The agent's namespace.")
@click.option("--trust-bundle", default="usbdra-trust", help="ConfigMap with the CAs to believe.")
@click.option("--certificate-hours", type=click.IntRange(1, 8760), default=24)
@click.option("--encryption", type=click.Choice(("Required", "Allowed", "Off")))
@click.option(
    "--exporter",
    type=click.Choice(("process", "inprocess")),
    default="inprocess",
    show_default=True,
    help="Who faces the network: `usbdra exporter`, or this process.",
)
@click.option(
    "--exporter-socket",
    type=click.Path(path_type=Path),
    default=Path("/run/usbdra-exporter/agent.sock"),
    show_default=True,
    help="Where `usbdra exporter` finds this agent.",
)
@click.option(
    "--exporter-uid",
    type=click.IntRange(0),
    default=64241,
    show_default=True,
    help="The user that `usbdra exporter` runs as.",
)
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")))
@click.option("--log-format", type=click.Choice(("auto", "text", "json")), default="auto")
@click.option(
    "--kubelet-dir",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubelet"),
    show_default=True,
)
@click.option(
    "--cdi-dir", type=click.Path(path_type=Path), default=Path("/var/run/cdi"), show_default=True
)
@click.option("--machines", is_flag=True, help="Plug devices into virtual machines of this node.")
@click.option("--outside-hosts", is_flag=True, help="Use devices of USBExporterHosts as well.")
@click.option("--metrics-address", default="", help="Serve /metrics here; default: nowhere.")
@click.option("--metrics-port", type=TCP_PORT, default=9641, show_default=True)
@click.option(
    "--host-proc",
    type=click.Path(path_type=Path),
    help="The host's /proc: give running containers a device that is back under other numbers.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: service account.")
@click.option(
    "--probe",
    type=click.Choice(("live", "startup", "ready")),
    help="Ask the running agent instead; status 0 for yes, 1 for no.",
)
@pass_invocation
def agent_command(
    invocation: Invocation,
    node: str | None,
    pod_uid: str,
    group: str | None,
    port: int | None,
    assignment: str,
    link_report_seconds: int,
    resets: str,
    visibility: str | None,
    forward_low_speed: str | None,
    max_ports: int | None,
    pki: Path | None,
    signer: str,
    namespace: str,
    trust_bundle: str,
    certificate_hours: int,
    encryption: str | None,
    exporter: str,
    exporter_socket: Path,
    exporter_uid: int,
    log_level: str | None,
    log_format: str,
    kubelet_dir: Path,
    cdi_dir: Path,
    machines: bool,
    outside_hosts: bool,
    metrics_address: str,
    metrics_port: int,
    host_proc: Path | None,
    kubeconfig: Path | None,
    probe: str | None,
) -> int:
    """Be the agent of a Kubernetes node: publish its devices, prepare claims, export.

    The DaemonSet of the chart starts it; it runs as root on the host's network.
    """
    pod_uid = pod_uid or "standalone"
    if probe is not None:
        from usbdra.agent.probes import ask, socket_path

        return 0 if ask(socket_path(invocation.settings().run_dir, pod_uid), probe) else 1
    from usbdra import log
    from usbdra.agent import daemon
    from usbdra.agent.options import AgentOptions
    from usbdra.cli import parts
    from usbdra.tracing.process import traced
    from usbdra.types import NodeName

    settings = invocation.live_settings(
        node=node,
        group=group,
        port=port,
        visibility=visibility,
        forward_low_speed=forward_low_speed,
        pki_dir=pki,
        encryption=encryption,
        log_level=log_level,
        log_format=log_format,
    )
    log.setup(settings.log_level, settings.log_format)
    fault = os.environ.get("USBDRA_FAULT_FILE")  # no setting: only the cluster bed has it
    options = AgentOptions(
        node=NodeName(parts.node_name(settings)),
        pod_uid=pod_uid,
        group=settings.group,
        port=settings.port,
        listen=settings.listen,
        allowed_cidrs=settings.allowed_cidrs,
        encryption=parts.encryption(settings),
        exporter=exporter,
        exporter_socket=exporter_socket,
        exporter_uid=exporter_uid,
        assignment=assignment,
        link_report_seconds=link_report_seconds,
        resets=resets == "true",
        visibility=settings.visibility,
        policy=parts.policy(settings),
        max_ports=max_ports or settings.max_ports or None,
        pki_dir=settings.pki_dir,
        signer=signer,
        namespace=namespace,
        trust_bundle=trust_bundle,
        certificate_hours=certificate_hours,
        run_dir=settings.run_dir,
        kubelet_dir=kubelet_dir,
        cdi_dir=cdi_dir,
        machines=machines,
        outside_hosts=outside_hosts,
        metrics=(metrics_address, metrics_port) if metrics_address else None,
        host_proc=host_proc,
        kubeconfig=kubeconfig,
        fault_file=Path(fault) if fault else None,
    )
    with traced("usbdra-agent", os.environ) as tracer:
        asyncio.run(daemon.run(options, tracer))
    return 0
