# SPDX-License-Identifier: Apache-2.0
"""Export, attach, detach, release on the fake kernel; tests/kernel runs the same bodies on real
ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract import session_bodies
from tests.contract.session_bodies import World
from tests.fakes.kernel import FakeKernel, Remote
from usbdra.exporter.bind import Binder
from usbdra.exporter.stubhost import StubHost
from usbdra.importer.attach import Attacher, AttachLimits
from usbdra.types import BusId
from usbdra.vhci.driver import VhciDriver

NOBODY_ANSWERS = (
    session_bodies.silent_peer_fails_and_leaves_nothing,
    session_bodies.peer_that_closes_fails_at_once,
)


@pytest.fixture(params=[(1, 8), (8, 15)], ids=["kernel default", "Debian"])
async def kernel(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[FakeKernel]:
    controllers, each = request.param
    async with FakeKernel(tmp_path, controllers=controllers, high=each, super_=each) as fake:
        fake.stub.plug(3, serial=b"A1")
        fake.vhci.remote = Remote(serial=b"A1")
        yield fake
        assert fake.sockets == 0


@pytest.mark.parametrize("body", session_bodies.BODIES, ids=lambda body: body.__name__)
async def test_promise(kernel: FakeKernel, body: session_bodies.Body) -> None:
    if body in NOBODY_ANSWERS:
        kernel.vhci.enumeration = "silent"
    driver = VhciDriver(kernel.root, native=kernel.vhci)
    host = StubHost(kernel.root, stub=kernel.stub, sysfs=kernel.stub)
    world = World(
        kernel.root,
        BusId("1-1.3"),
        driver,
        Binder(kernel.root, events=kernel.events, in_use=lambda _: None, host=host),
        Attacher(driver, kernel.events, root=kernel.root, limits=AttachLimits(enumerate=0.2)),
        kernel.events,
    )
    await body(world)
