# SPDX-License-Identifier: Apache-2.0
"""`usbdra serve`: the exporter of a machine that is in no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import TYPE_CHECKING

import click

from usbdra.cli import parts
from usbdra.cli.commands.export import binder
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.discovery.live import LiveInventory
    from usbdra.exporter.broker import Broker
    from usbdra.exporter.hostresets import HostResets
    from usbdra.exporter.local import LocalBroker
    from usbdra.exporter.server import ExporterServer
    from usbdra.exporter.visits import Visits
    from usbdra.tracing.spans import Tracer


@click.command("serve")
@common_options(("table", "json"))
@click.option("--listen", "addresses", multiple=True, metavar="ADDRESS", help="Listen here.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="TCP port, 3241; with --plain 3240; 0 for any."
)
@click.option("--plain", is_flag=True, help="No encryption, no certificates: for stock peers.")
@click.option("--allow", multiple=True, metavar="NODE", help="Serve only these nodes.")
@click.option("--cidr", multiple=True, metavar="NETWORK", help="Accept only from these networks.")
@click.option("--device", "only", multiple=True, metavar="DEVICE", help="Export only these.")
@pass_invocation
def serve_command(
    invocation: Invocation,
    addresses: tuple[str, ...],
    port: int | None,
    plain: bool,
    allow: tuple[str, ...],
    cidr: tuple[str, ...],
    only: tuple[str, ...],
) -> None:
    """Export this node's devices to others until interrupted.

    With a certificate that `kubectl usb exporter add` made, the cluster's nodes get devices for
    claims that have them, and nobody else does.

    Devices are bound when someone asks for one and go back to their driver when the session
    ends. Running sessions are the kernel's: they go on when this program stops.
    """
    from usbdra import log
    from usbdra.tracing.process import traced

    flags: dict[str, object] = {
        "listen": addresses or None,
        "plain_port" if plain else "port": port,
        "allowed_nodes": allow or None,
        "allowed_cidrs": cidr or None,
        "log_format": "json" if invocation.machine else None,
        "log_level": "debug" if invocation.verbose else None,
    }
    settings = invocation.live_settings(**flags)
    log.setup(settings.log_level, settings.log_format)
    with traced("usbdra-serve", os.environ) as tracer:
        asyncio.run(_serve(invocation, settings, plain, only, tracer))


async def _serve(
    invocation: Invocation, settings: Settings, plain: bool, only: tuple[str, ...], tracer: Tracer
) -> None:
    from usbdra.discovery import tree
    from usbdra.discovery.inventory import Inventory
    from usbdra.discovery.live import LiveInventory
    from usbdra.exporter.editions import Editions
    from usbdra.exporter.local import LocalBroker
    from usbdra.exporter.narrow import OnlyThese
    from usbdra.exporter.outside import GrantGuard
    from usbdra.exporter.renewal import HostRenewal
    from usbdra.exporter.visits import Visits
    from usbdra.transport.watch import LinkWatch, NetlinkEnds

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    with parts.uevents() as events:
        inventory = Inventory(
            settings.root, node=parts.node_name(settings), policy=parts.policy(settings)
        )
        live = LiveInventory(inventory, events, poke=tree.poke)
        async with _running(live.run()):
            inventory.resync()
            host = None if plain else parts.outside_name(settings)
            editions = Editions()
            broker = LocalBroker(
                binder(settings, events),
                lambda: live.snapshot,
                authorise=GrantGuard(host).authorise if host else None,
                on_session=editions.changed,
            )
            await broker.start()
            renewal = HostRenewal(settings.pki_dir, host) if host else None
            named = _devices(live, only)
            offered = broker if named is None else OnlyThese(broker, named)
            resets = _resets(settings, live, broker, offered)
            visits = Visits(renewal, broker, editions, resets) if renewal else None
            server = _server(settings, offered, plain, visits, tracer)
            try:
                async with server:
                    for address, number in server.addresses:
                        clear = plain or server.encryption_off
                        invocation.line(
                            f"serving {len(live.snapshot.offers)} devices on {address} port "
                            f"{number}{', NOT encrypted' if clear else ''}",
                            {"address": address, "port": number, "encrypted": not clear},
                        )
                    links = LinkWatch(partial(NetlinkEnds, number))
                    links.listen(broker.link_ended)
                    async with _running(links.run()), _running(editions.follow(live.watch())):
                        await stop.wait()
            finally:
                await broker.stop()


@contextlib.asynccontextmanager
async def _running(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """The work goes on while the block does."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _devices(live: LiveInventory, only: tuple[str, ...]) -> frozenset[str] | None:
    """Stable names of the devices to export; None for all. Raises NotFound for a wrong one."""
    return frozenset(live.snapshot.find(key).name for key in only) if only else None


def _resets(
    settings: Settings, live: LiveInventory, broker: LocalBroker, offered: Broker
) -> HostResets:
    """By the facts of the moment, as an agent resets devices of its node."""
    from usbdra.agent.resetting import DeviceReset
    from usbdra.discovery.hostuse import holder_of
    from usbdra.exporter.hostresets import HostResets
    from usbdra.state.resets import ResetSchema
    from usbdra.state.store import RecordStore

    act = DeviceReset(
        settings.root,
        lambda: live.snapshot,
        over_network=broker.holder,
        here=lambda name: None,
        host_use=partial(holder_of, settings.root),
    )
    return HostResets(offered, RecordStore(settings.run_dir / "host-resets", ResetSchema()), act)


def _server(
    settings: Settings,
    broker: Broker,
    plain: bool,
    visits: Visits | None,
    tracer: Tracer,
) -> ExporterServer:
    """visits: of the controller of a cluster that this machine is not part of, but for."""
    from usbdra.exporter.policy import AccessPolicy, parse_networks
    from usbdra.exporter.server import ExporterServer, Listen
    from usbdra.types import CONTROLLER, NodeName

    policy = AccessPolicy(
        networks=parse_networks(settings.allowed_cidrs),
        nodes=frozenset(NodeName(n) for n in settings.allowed_nodes) or None,
        others=frozenset({CONTROLLER}) if visits else frozenset(),
    )
    return ExporterServer(
        broker,
        Listen(settings.listen, settings.plain_port if plain else settings.port),
        identity=None if plain else parts.identity(settings),
        plain=plain,
        encryption=parts.encryption(settings),
        policy=policy,
        visited=visits,
        tracer=tracer,
    )
