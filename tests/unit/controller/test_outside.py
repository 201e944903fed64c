# SPDX-License-Identifier: Apache-2.0
"""Which hosts outside are asked, and where; what is brought to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.broker import STICK
from tests.fakes.kube import FakeKube
from tests.unit.controller.make import CONTRACT
from tests.waiting import until
from usbdra.controller import castore, outsidelink
from usbdra.controller.outside import OutsidePart
from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.controller.rotation import Authorities
from usbdra.errors import Unreachable
from usbdra.kube.types import RESOURCE_SLICE, SECRET
from usbdra.pki.authority import make_authority, new_key
from usbdra.pki.request import make_peer_request
from usbdra.types import outside_node
from usbdra.usbip.extension import Inventory, InventoryRequest

NAMES = castore.Names("usbdra")
NOW = datetime.now(UTC)
CA = make_authority("usbdra CA", NOW)


class Network:
    """Hosts by address; each asks once for its next certificate."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.dialled: list[tuple[str, str]] = []
        self.brought: list[InventoryRequest] = []

    async def dial(self, address: str, port: int, **how: Any) -> Link:
        self.dialled.append((address, how["expect"]))
        if self.at.get(address) != how["expect"]:
            raise Unreachable(f"{address} does not answer")
        return Link(self, self.at[address])


class Link:
    """Of a host that tells nothing by itself: an older program."""

    peer = None

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._name = name

    def close(self) -> None:
        """Nothing was opened."""

    async def visit(self, request: InventoryRequest) -> Inventory:
        self._network.brought.append(request)
        first = len(self._network.brought) == 1
        asks = make_peer_request(new_key(), self._name).decode() if first else ""
        return Inventory((STICK,), asks)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    monkeypatch.setattr(outsidelink, "dial", made.dial)
    return made


@pytest_asyncio.fixture
async def api(network: Network) -> AsyncIterator[FakeKube]:
    made = FakeKube()
    made.put(SECRET, castore.secret_of(Authorities(CA, NOW), NAMES, CONTRACT.group))
    settings = OutsideSettings(look_seconds=0.0, silent_seconds=0.0)
    part = OutsidePart(made, CONTRACT, NAMES, settings)  # type: ignore[arg-type]
    task = asyncio.create_task(part.run())
    yield made
    task.cancel()
    await asyncio.wait([task])


def put(api: FakeKube, address: str) -> None:
    api.put(CONTRACT.host, {"metadata": {"name": "pi"}, "spec": {"address": address}})


async def test_a_host_is_asked_where_its_object_says_until_that_is_gone(
    api: FakeKube, network: Network
) -> None:
    put(api, "192.0.2.7")
    await until(lambda: network.dialled == [("192.0.2.7", "outside/pi")])
    network.at["192.0.2.8"] = outside_node("pi")
    put(api, "192.0.2.8")
    await until(lambda: bool(api.all(RESOURCE_SLICE)))
    assert ("192.0.2.8", "outside/pi") in network.dialled
    api.drop(CONTRACT.host, "pi")
    for _ in range(20):
        await asyncio.sleep(0)
    asked = len(network.dialled)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(network.dialled) == asked


async def test_a_host_is_brought_the_cas_and_the_certificate_that_it_asked_for(
    api: FakeKube, network: Network
) -> None:
    network.at["192.0.2.7"] = outside_node("pi")
    put(api, "192.0.2.7")
    await until(lambda: len(network.brought) > 2)
    first, second, third = network.brought[:3]
    assert first.trust == CA.cert_pem().decode()
    assert (first.certificate, third.certificate) == ("", "")
    assert second.certificate.startswith("-----BEGIN CERTIFICATE-----")
