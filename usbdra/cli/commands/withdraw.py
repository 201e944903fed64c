# SPDX-License-Identifier: Apache-2.0
"""`usbdra withdraw`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from usbdra.cli.group import common_options
from usbdra.cli.invocation import LINE_FORMATS, Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.slices.withdraw import Installation


@click.command("withdraw")
@common_options(LINE_FORMATS)
@click.option("--group", metavar="GROUP", help="API group; the driver is usb.GROUP.")
@click.option("--namespace", envvar="POD_NAMESPACE", default="usbdra", show_default=True)
@click.option("--daemon-set", default="usbdra-agent", show_default=True, metavar="NAME")
@click.option(
    "--deployment", default="", metavar="NAME", help="The controller's, if it publishes as well."
)
@click.option(
    "--agents",
    default="app.kubernetes.io/name=usbdra,app.kubernetes.io/component=agent",
    metavar="SELECTOR",
    help="Label selector of the pods that are waited for.",
)
@click.option("--force", is_flag=True, help="Even while pods hold devices: they will not end.")
@click.option(
    "--patience",
    type=click.IntRange(0),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for agents of nodes that do not answer.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: service account.")
@pass_invocation
def withdraw_command(
    invocation: Invocation,
    group: str | None,
    namespace: str,
    daemon_set: str,
    deployment: str,
    agents: str,
    force: bool,
    patience: int,
    kubeconfig: Path | None,
) -> None:
    """Take the driver out of the cluster: its agents stop, then its ResourceSlices go.

    The chart's Job calls it before an uninstallation; install again to undo it.
    """
    from usbdra import log
    from usbdra.slices.withdraw import Installation

    settings = invocation.live_settings(group=group)
    log.setup(settings.log_level, settings.log_format)
    what = Installation(
        driver=f"usb.{settings.group}",
        namespace=namespace,
        daemon_set=daemon_set,
        agents=agents,
        deployment=deployment,
    )
    gone = asyncio.run(_withdraw(what, kubeconfig, force=force, patience=patience))
    invocation.line(f"{gone} ResourceSlices of {what.driver} deleted", {"slices": gone})


async def _withdraw(
    what: Installation, kubeconfig: Path | None, *, force: bool, patience: float
) -> int:
    from usbdra.kube.client import KubeClient
    from usbdra.slices.withdraw import withdraw

    api = await KubeClient.connect(kubeconfig)
    try:
        return await withdraw(api, what, force=force, patience=patience)
    finally:
        await api.aclose()
