# SPDX-License-Identifier: Apache-2.0
"""The agent's two ways to be reached: each checks the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import STICK, FakeBroker
from tests.fakes.certificates import certificates
from tests.fakes.exporter import free_port
from tests.fakes.traces import Kept
from tests.waiting import patience, until
from usbdra.agent.export import Export
from usbdra.agent.options import AgentOptions
from usbdra.errors import ConfigError, PeerRefused, UsbdraError
from usbdra.exporter.broker import GrantRequest, Peer
from usbdra.exporter.remote import RemoteBroker
from usbdra.importer.dial import dial
from usbdra.tracing.otel import OtelTracer
from usbdra.tracing.spans import OFF, Kind, Span, Tracer, Value, under
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import Identity
from usbdra.types import ClaimUid, NodeName
from usbdra.usbip.extension import ClaimRef

CLAIM = ClaimRef("lab", "one", ClaimUid("u-1"))


@asynccontextmanager
async def exporting(
    broker: FakeBroker,
    pki: Path,
    addresses: set[str],
    tracer: Tracer = OFF,
    identity: Callable[[], Identity] | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[AgentOptions, list[str]]]:
    refused: list[str] = []

    async def known(node: NodeName) -> set[str]:
        return addresses

    def note(request: GrantRequest, peer: Peer, error: UsbdraError) -> None:
        refused.append(str(error))

    changes = {"encryption": Encryption.ALLOWED, **changes}
    options = AgentOptions(
        node=NodeName("node-a"), pod_uid="p", listen=("127.0.0.1",), port=free_port(), **changes
    )
    export = Export(
        options,
        broker,
        pki=lambda: pki,
        identity=identity,
        addresses=known,
        on_refused=note,
        tracer=tracer,
    )
    running = asyncio.create_task(export.run())
    try:
        yield options, refused
    finally:
        running.cancel()
        await asyncio.wait([running])


async def ask(port: int) -> None:
    """A grant, tried until somebody listens."""
    async with patience():
        while True:
            try:
                link = await dial(
                    "127.0.0.1",
                    port,
                    identity=certificates().identity("b"),
                    expect="node-a",
                    encryption=Encryption.ALLOWED,
                )
                break
            except UsbdraError:
                await asyncio.sleep(0.01)
    async with link:
        await link.grant(str(STICK.name), claim=CLAIM)


async def test_in_process_the_address_counts_as_well(broker: FakeBroker) -> None:
    async with exporting(broker, certificates().a, {"127.0.0.1"}) as (options, refused):
        await ask(options.port)
        assert broker.calls == ["acquire", "hand_over"]
        assert refused == []
    async with exporting(broker, certificates().a, {"10.0.0.2"}) as (options, refused):
        with pytest.raises(PeerRefused, match="is no InternalIP of node node-b"):
            await ask(options.port)
        assert broker.calls == ["acquire", "hand_over"]
        (text,) = refused
        assert text.startswith("127.0.0.1 is no InternalIP")


async def test_in_process_the_listener_has_the_identity_of_the_agents_own_links(
    broker: FakeBroker,
) -> None:
    identity, asked = certificates().identity("a"), 0

    def counted() -> Identity:
        nonlocal asked
        asked += 1
        return identity

    async with exporting(broker, Path("/nowhere"), {"127.0.0.1"}, identity=counted) as (options, _):
        await ask(options.port)
    assert (asked, broker.calls) == (1, ["acquire", "hand_over"])


class Claimed:
    """A span of a peer that says what it likes of it."""

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def set(self, **attributes: Value) -> None:
        pass

    def child(self, name: str, kind: Kind, **attributes: Value) -> Span:
        return self

    def past(self, name: str, seconds: float) -> None:
        pass

    def end(self, error: str = "") -> None:
        pass


@pytest.mark.parametrize(
    ("said", "parent"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00f067aa0ba902b7"),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01", ""),
        ("x" * 2000, ""),
        ("", ""),
    ],
)
async def test_a_trace_of_the_peer_is_gone_on_with_where_its_word_is_well_formed(
    broker: FakeBroker, said: str, parent: str
) -> None:
    """In this process there is no exporter between: the agent's steps are below its grant."""
    kept = Kept()
    tracer = OtelTracer("a", kept)
    async with exporting(broker, certificates().a, {"127.0.0.1"}, tracer) as (options, _):
        with under(Claimed(said)):
            await ask(options.port)
    tracer.flush()
    tracer.close()
    assert broker.calls == ["acquire", "hand_over"]
    assert kept.named("grant").parent == parent
    assert kept.named("grant").attributes == {
        "usbdra.device": STICK.name,
        "usbdra.peer": "node-b",
    }
    assert kept.named("vouch").parent == kept.named("grant").span
    assert len(kept.traces()) == 1


async def test_behind_the_exporter_no_port_is_opened(broker: FakeBroker, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "exporter": "process",
        "exporter_socket": tmp_path / "agent.sock",
        "exporter_uid": os.geteuid(),
    }
    pki = tmp_path / "current"
    async with exporting(broker, pki, set(), **changes) as (options, _):
        await until(options.exporter_socket.exists)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", options.port)
        remote = RemoteBroker(options.exporter_socket, os.geteuid())
        with pytest.raises(UsbdraError, match=r"cannot use .*tls\.crt"):
            await remote.identity("")
        pki.symlink_to(certificates().a)
        assert (await remote.identity("")).key.startswith("-----BEGIN")
    assert not options.exporter_socket.exists()


def test_networks_are_checked_at_the_start(broker: FakeBroker, tmp_path: Path) -> None:
    options = AgentOptions(node=NodeName("a"), pod_uid="p", allowed_cidrs=("10.0.0.0/99",))

    async def known(node: NodeName) -> set[str]:
        return set()

    with pytest.raises(ConfigError, match=r"10\.0\.0\.0/99"):
        Export(options, broker, pki=lambda: tmp_path, addresses=known)
