# SPDX-License-Identifier: Apache-2.0
"""`usbdra controller`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from usbdra.cli.group import TCP_PORT, common_options
from usbdra.cli.invocation import Invocation, pass_invocation


@click.command("controller")
@common_options(())
@click.option("--group", metavar="GROUP", help="API group; the driver is usb.GROUP.")
@click.option("--namespace", envvar="POD_NAMESPACE", required=True, help="Where the Lease is.")
@click.option("--pod-name", envvar="POD_NAME", help="This pod's name; default: the host's.")
@click.option(
    "--absent-grace",
    type=click.IntRange(0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How long a NodeUSBDevice that is absent and not assigned is kept.",
)
@click.option(
    "--health-port", type=TCP_PORT, default=8081, show_default=True, help="/livez and /readyz."
)
@click.option(
    "--metrics-port", type=TCP_PORT, metavar="PORT", help="Serve /metrics; without: nothing."
)
@click.option("--signer", metavar="NAME", help="Answer certificate requests for this signer.")
@click.option("--agent-account", default="usbdra-agent", help="Service account that may ask.")
@click.option("--trust-bundle", default="usbdra-trust", help="ConfigMap with the CAs to believe.")
@click.option("--certificate-hours", type=click.IntRange(1, 8760), default=24)
@click.option("--ca-days", type=click.IntRange(1, 36500), default=365)
@click.option("--holder-image", metavar="IMAGE", help="Give devices to VMs, held by pods of it.")
@click.option("--holder-pull-policy", default="IfNotPresent", show_default=True)
@click.option(
    "--machine-label", default="", metavar="KEY", help="Label of VMs' pods: the VM's name."
)
@click.option(
    "--machine-socket", default="", metavar="VOLUME/PATH", help="QMP socket of a VM's pod."
)
@click.option("--mirror-machines", is_flag=True, help="Follow usbDevices of VirtualMachines.")
@click.option("--outside-hosts", is_flag=True, help="Publish the devices of USBExporterHosts.")
@click.option(
    "--exporter-port", type=TCP_PORT, default=3241, show_default=True, help="Theirs and the nodes'."
)
@click.option("--encryption", type=click.Choice(("Required", "Allowed", "Off")), default="Required")
@click.option("--assignment", type=click.Choice(("Off", "Optional", "Required")), default="Off")
@click.option("--web-port", type=TCP_PORT, metavar="PORT", help="Serve the web page, locally.")
@click.option(
    "--web-tls",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Serve it everywhere, with tls.crt and tls.key of this directory.",
)
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")))
@click.option("--log-format", type=click.Choice(("auto", "text", "json")), default="auto")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: service account.")
@pass_invocation
def controller_command(
    invocation: Invocation,
    group: str | None,
    namespace: str,
    pod_name: str | None,
    absent_grace: int,
    health_port: int,
    metrics_port: int | None,
    signer: str | None,
    agent_account: str,
    trust_bundle: str,
    certificate_hours: int,
    ca_days: int,
    holder_image: str | None,
    holder_pull_policy: str,
    machine_label: str,
    machine_socket: str,
    mirror_machines: bool,
    outside_hosts: bool,
    exporter_port: int,
    encryption: str,
    assignment: str,
    web_port: int | None,
    web_tls: Path | None,
    log_level: str | None,
    log_format: str,
    kubeconfig: Path | None,
) -> int:
    """Be the cluster's controller: NodeUSBDevices, USBDevices and their claims.

    The Deployment of the chart starts it. Of several, one leads and the others wait.
    """
    import os
    import uuid
    from datetime import timedelta

    from usbdra import log
    from usbdra.controller import daemon
    from usbdra.controller.issuing import CertificateSettings
    from usbdra.controller.options import ControllerOptions, MachineSettings
    from usbdra.controller.outsidesettings import OutsideSettings
    from usbdra.controller.web.options import WebOptions
    from usbdra.transport.ktls import Encryption

    settings = invocation.live_settings(group=group, log_level=log_level, log_format=log_format)
    log.setup(settings.log_level, settings.log_format)
    name = pod_name or os.uname().nodename
    certificates = None
    if signer:
        certificates = CertificateSettings(
            signer=signer,
            account=agent_account,
            bundle=trust_bundle,
            lifetime=timedelta(hours=certificate_hours),
            ca_lifetime=timedelta(days=ca_days),
        )
    machines = None
    if holder_image:
        machines = MachineSettings(
            image=holder_image,
            pull_policy=holder_pull_policy,
            label=machine_label,
            socket=machine_socket,
            mirror=mirror_machines,
        )
    outside = None
    if outside_hosts:
        outside = OutsideSettings(
            port=exporter_port, encryption=Encryption(encryption), assignment=assignment
        )
    options = ControllerOptions(
        identity=f"{name}_{uuid.uuid4().hex[:8]}",
        namespace=namespace,
        group=settings.group,
        absent_grace=absent_grace,
        health=("", health_port),
        metrics=("", metrics_port) if metrics_port else None,
        certificates=certificates,
        machines=machines,
        outside=outside,
        web=None if web_port is None else WebOptions(web_port, web_tls),
        kubeconfig=kubeconfig,
    )
    asyncio.run(daemon.run(options))
    return 0
