# SPDX-License-Identifier: Apache-2.0
"""`usbdra exporter`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation


@click.command("exporter")
@common_options(())
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    default=Path("/run/usbdra-exporter/agent.sock"),
    show_default=True,
    help="Where this node's agent listens.",
)
@click.option(
    "--agent-uid",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The user that the agent runs as.",
)
@click.option("--listen", "addresses", multiple=True, metavar="ADDRESS", help="Listen here.")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port; 0 for any.")
@click.option("--cidr", multiple=True, metavar="NETWORK", help="Accept only from these networks.")
@click.option("--encryption", type=click.Choice(("Required", "Allowed", "Off")))
@click.option(
    "--metrics/--no-metrics", default=False, help="Tell the agent our numbers, for its /metrics."
)
@click.option("--pod-uid", envvar="POD_UID", default="", help="UID of the exporter's own pod.")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")))
@click.option("--log-format", type=click.Choice(("auto", "text", "json")), default="auto")
@pass_invocation
def exporter_command(
    invocation: Invocation,
    socket: Path,
    agent_uid: int,
    addresses: tuple[str, ...],
    port: int | None,
    cidr: tuple[str, ...],
    encryption: str | None,
    metrics: bool,
    pod_uid: str,
    log_level: str | None,
    log_format: str,
) -> None:
    """Face the network for this node's agent, without privilege.

    Speaks TLS and the protocol with other nodes; the agent checks each request again and alone
    touches devices. The DaemonSet of the chart starts it; it refuses to run as root.
    """
    from usbdra import log
    from usbdra.dumping import StateDump
    from usbdra.exporter import counts, process
    from usbdra.exporter.policy import AccessPolicy, parse_networks
    from usbdra.exporter.server import Listen
    from usbdra.stopping import until_told
    from usbdra.tracing.process import traced
    from usbdra.transport.ktls import Encryption

    settings = invocation.live_settings(
        listen=addresses or None,
        port=port,
        allowed_cidrs=cidr or None,
        encryption=encryption,
        log_level=log_level,
        log_format=log_format,
    )
    log.setup(settings.log_level, settings.log_format)
    process.require_no_privilege()
    options = process.ExporterOptions(
        socket=socket,
        agent_uid=agent_uid,
        listen=Listen(settings.listen, settings.port, reuse_port=True),
        policy=AccessPolicy(networks=parse_networks(settings.allowed_cidrs)),
        encryption=Encryption(settings.encryption),
        counts=counts.name_of(pod_uid or "standalone") if metrics else "",
    )
    dump = StateDump()
    with traced("usbdra-exporter", os.environ) as tracer:
        asyncio.run(until_told(process.run(options, dump, tracer), "exporter", dump))
