# SPDX-License-Identifier: Apache-2.0
"""`usbdra node-setup`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from usbdra.cli.group import TCP_PORT, common_options
from usbdra.cli.invocation import Invocation, pass_invocation


@click.command("node-setup")
@common_options(())
@click.option("--node", envvar="NODE_NAME", required=True, metavar="NAME", help="This node.")
@click.option("--group", metavar="GROUP", help="API group; the label is GROUP/usbip.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="A file that is there while the node is ready, for the readiness probe.",
)
@click.option(
    "--metrics-port", type=TCP_PORT, metavar="PORT", help="Serve /metrics; without: nothing."
)
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")))
@click.option("--log-format", type=click.Choice(("auto", "text", "json")), default="auto")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: service account.")
@pass_invocation
def node_setup_command(
    invocation: Invocation,
    node: str,
    group: str | None,
    ready_file: Path | None,
    metrics_port: int | None,
    log_level: str | None,
    log_format: str,
    kubeconfig: Path | None,
) -> int:
    """Load the kernel's USB/IP modules and keep the node's label true.

    The DaemonSet of the chart starts it on every node. The label GROUP/usbip=true is there while
    usbip-core, usbip-host and vhci-hcd are all loaded; agents run on nodes that have it.
    """
    from usbdra import log
    from usbdra.nodesetup import daemon

    settings = invocation.live_settings(group=group, log_level=log_level, log_format=log_format)
    log.setup(settings.log_level, settings.log_format)
    options = daemon.SetupOptions(
        node=node,
        group=settings.group,
        ready_file=ready_file,
        metrics=("", metrics_port) if metrics_port else None,
        kubeconfig=kubeconfig,
    )
    asyncio.run(daemon.run(options))
    return 0
