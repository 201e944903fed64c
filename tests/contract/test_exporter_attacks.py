# SPDX-License-Identifier: Apache-2.0
"""The attacker of the cluster's attack suite (tests/cluster/attacks) at a real exporter process.

What needs real nodes, kernels and claims is there; this shows each tool at work, quickly.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.cluster.attacks.attacker import Attacker, ask_for
from tests.cluster.attacks.forger import HOUR, Forger
from tests.contract.exporting import CLAIM, NAME, World, driver_of
from tests.fakes.certificates import certificates
from usbdra.pki.files import read_authority
from usbdra.usbip import wire


@pytest.fixture
def attacker(world: World) -> Attacker:
    address = "127.0.0.1", world.exporter.port
    return Attacker(lambda: socket.create_connection(address, timeout=20))


async def test_who_shows_no_good_certificate_is_not_heard(
    world: World, attacker: Attacker, tmp_path: Path
) -> None:
    ours = Forger(tmp_path, read_authority(certificates().ca))
    for identity, said in (
        (None, "tlsv13 alert certificate required"),
        (certificates().stranger, "tlsv1 alert unknown ca"),
        (ours.impostor().node("node-b"), "tlsv1 alert unknown ca"),
        (ours.node("node-b", begins=-2 * HOUR), "sslv3 alert certificate expired"),
        (ours.node("node-b", begins=HOUR), "sslv3 alert bad certificate"),
    ):
        assert (await asyncio.to_thread(attacker.grant, identity, NAME, CLAIM)).said == said
    plain = wire.pack_header(wire.OP_REQ_IMPORT) + wire.pack_busid("1-1")
    assert await asyncio.to_thread(attacker.raw, plain) == b""
    assert driver_of(world.stick) == "usb"


async def test_a_recorded_session_is_of_no_use(world: World, attacker: Attacker) -> None:
    def record() -> bytes:
        with attacker.wire(certificates().b) as link:
            assert ask_for(link, NAME, CLAIM).granted == NAME
            return bytes(link.sent)

    session = await asyncio.to_thread(record)
    await world.given_back()
    answer = await asyncio.to_thread(attacker.raw, session)
    assert NAME.encode() not in answer
    assert driver_of(world.stick) == "usb"


async def test_what_the_attacker_may_have_it_gets(world: World, attacker: Attacker) -> None:
    """Else a refusal would prove nothing."""
    outcome = await asyncio.to_thread(attacker.grant, certificates().b, NAME, CLAIM)
    assert outcome.granted == NAME
    await world.given_back()
    unexport = wire.pack_header(0x8006) + bytes(312)
    answer = await asyncio.to_thread(attacker.message, certificates().b, unexport, 8)
    assert wire.parse_header(answer) == (wire.VERSION, 0x0006, wire.Status.ERROR)
