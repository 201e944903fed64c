# SPDX-License-Identifier: Apache-2.0
"""A host outside and its certificate over the life of the cluster's CAs, by visits alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from usbdra.controller import castore
from usbdra.controller.hostcerts import renewed
from usbdra.controller.ownpeer import OwnPeer
from usbdra.controller.rotation import Authorities
from usbdra.errors import Refused
from usbdra.exporter.broker import Peer
from usbdra.exporter.renewal import HostRenewal
from usbdra.kube.types import SECRET
from usbdra.pki import hostfiles, trust
from usbdra.pki.authority import Pair, make_authority, new_key, read_certificates
from usbdra.pki.request import make_peer_request
from usbdra.transport.ktls import Role
from usbdra.types import CONTROLLER, NodeName
from usbdra.usbip.extension import InventoryRequest

START = datetime.now(UTC)
NAMES = castore.Names("usbdra")
LEADER = Peer("192.0.2.1", 1, CONTROLLER, True)


class World:
    """A host, a controller that visits it, and a clock for both."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.folder = folder
        self.api = FakeKube()
        self.own = OwnPeer(self.api, NAMES, lambda: self.now)
        self.host = HostRenewal(folder, "pi", lambda: self.now)
        self.certificate = ""
        self.asked = 0

    def believe(self, signing: Pair, **more: Any) -> None:
        secret = castore.secret_of(Authorities(signing, START, **more), NAMES, "example.com")
        self.api.put(SECRET, secret)

    async def visit(self, peer: Peer = LEADER) -> None:
        await self.own.refresh()
        brought = InventoryRequest(self.own.bundle, self.certificate)
        self.certificate = ""
        if request := await self.host(peer, brought):
            self.asked += 1
            self.certificate = self.own.sign_next("pi", request)

    def file(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def issued_by(self, ca: Pair) -> bool:
        cert = read_certificates(self.file("tls.crt"), "tls.crt")[0]
        return trust.holds(cert, [ca.cert], self.now)


OLD, NEW = (make_authority(f"usbdra CA {n}", START, timedelta(days=365)) for n in (1, 2))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.believe(OLD)
    pem = hostfiles.request(tmp_path, "pi")
    first = trust.write_bundle([renewed(OLD, "pi", pem, START), OLD.cert])
    hostfiles.accept(tmp_path, first, START, "pi.pem")
    yield made
    del made.own  # its context has memory of its own


async def test_a_certificate_is_renewed_after_two_thirds_with_the_same_key(world: World) -> None:
    key, before = world.file("tls.key"), world.file("tls.crt")
    world.now = START + timedelta(days=59)
    await world.visit()
    assert (world.asked, world.file("tls.crt")) == (0, before)
    world.now = START + timedelta(days=61)
    await world.visit()
    await world.visit()
    assert world.asked == 1
    assert world.file("tls.crt") != before
    assert world.file("tls.key") == key
    await world.visit()
    assert world.asked == 1, "the new one holds"


async def test_a_rotation_of_the_ca_reaches_the_host_before_it_needs_it(world: World) -> None:
    world.believe(OLD, next=NEW)
    world.now += timedelta(minutes=30)
    await world.visit()
    assert trust.read_bundle(world.file("ca.crt"), "ca") == (OLD.cert, NEW.cert)
    assert (world.asked, world.issued_by(OLD)) == (0, True)
    world.believe(NEW, previous=OLD.cert)
    world.now += timedelta(hours=1)
    await world.visit()
    await world.visit()
    assert world.issued_by(NEW)
    world.believe(NEW)
    world.now += timedelta(hours=25)
    await world.visit()
    assert trust.read_bundle(world.file("ca.crt"), "ca") == (NEW.cert,)
    assert world.own.context(Role.CLIENT) is not None


async def test_cas_that_would_shut_the_host_out_are_not_taken_in(world: World) -> None:
    world.believe(NEW)
    await world.visit()
    assert trust.read_bundle(world.file("ca.crt"), "ca") == (OLD.cert,)


@pytest.mark.parametrize("who", ["node-b", "outside/pi", None])
async def test_nobody_else_brings_anything(world: World, who: str | None) -> None:
    world.believe(OLD, next=NEW)
    world.now = START + timedelta(days=80)
    await world.visit(Peer("192.0.2.1", 1, NodeName(who) if who else None))
    assert world.asked == 0
    assert trust.read_bundle(world.file("ca.crt"), "ca") == (OLD.cert,)


@pytest.mark.parametrize("what", ["trust", "certificate"])
async def test_nonsense_changes_nothing(
    world: World, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = {name: world.file(name) for name in ("tls.crt", "tls.key", "ca.crt")}
    await world.own.refresh()
    nonsense = "nonsense \u00fc"
    brought = InventoryRequest(nonsense if what == "trust" else world.own.bundle, nonsense)
    assert await world.host(LEADER, brought) == ""
    assert "this host's certificate" in caplog.text
    assert {name: world.file(name) for name in before} == before


def test_a_host_is_signed_its_own_name_alone() -> None:
    for name in ("outside/lab-pc", "node-a", "cluster/controller"):
        pem = make_peer_request(new_key(), name)
        with pytest.raises(Refused, match=f"asks for a certificate of {name}"):
            renewed(OLD, "pi", pem, START)
