# SPDX-License-Identifier: Apache-2.0
"""The CA's Secret and bundle on an API in memory: made, rotated, repaired, never overwritten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.fakes.kube import FakeKube
from usbdra.controller import castore
from usbdra.controller.authority import ClusterAuthority
from usbdra.controller.rotation import Authorities, Timing
from usbdra.errors import ConfigError
from usbdra.kube import errors
from usbdra.kube.types import CONFIG_MAP, SECRET

GROUP = "example.com"
NAMES = castore.Names("usbdra")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class World:
    def __init__(self) -> None:
        self.kube = FakeKube()
        self.now = START
        self.part = ClusterAuthority(
            self.kube, NAMES, GROUP, timing=Timing(), clock=lambda: self.now
        )

    async def look(self) -> Authorities:
        self.pause = await self.part.step()
        return castore.authorities_of(await self.secret())

    async def secret(self) -> dict[str, object]:
        return await self.kube.get(SECRET, "usbdra-ca", "usbdra")

    async def believed(self) -> int:
        bundle = await self.kube.get(CONFIG_MAP, "usbdra-trust", "usbdra")
        return len(castore.published(bundle))


async def test_made_when_absent_written_before_published() -> None:
    world = World()
    found = await world.look()
    assert world.kube.requests == [
        ("create", "secrets", "usbdra-ca"),
        ("create", "configmaps", "usbdra-trust"),
    ]
    signing = await world.part.signing()
    assert signing.cert == found.signing.cert
    await world.look()
    assert len(world.kube.requests) == 2, "nothing is written when nothing changed"


async def test_a_rotation_on_request_to_its_end() -> None:
    world = World()
    first = (await world.look()).signing.cert
    asked = world.kube.all(SECRET)[0]
    asked["metadata"]["annotations"] = {f"{GROUP}/rotate": "now", "kept": "yes"}
    world.kube.put(SECRET, asked)
    await world.look()
    assert (await world.secret())["metadata"]["annotations"] == {"kept": "yes"}  # type: ignore[index]
    assert (await world.part.signing()).cert == first
    assert (world.pause, await world.believed()) == (3600.0, 2)
    world.now += timedelta(hours=1)
    await world.look()
    second = (await world.part.signing()).cert
    assert (second != first, await world.believed()) == (True, 2)
    world.now += timedelta(hours=24, minutes=5)
    await world.look()
    assert ((await world.part.signing()).cert, await world.believed()) == (second, 1)


async def test_a_killed_controller_publishes_what_it_wrote() -> None:
    world = World()
    await world.look()
    world.kube.drop(CONFIG_MAP, "usbdra-trust", "usbdra")
    again = World()
    again.kube = world.kube
    again.part = ClusterAuthority(world.kube, NAMES, GROUP, clock=lambda: START)
    await again.part.step()
    assert await again.believed() == 1


async def test_a_secret_that_cannot_be_read_is_left_alone() -> None:
    world = World()
    await world.look()
    broken = world.kube.all(SECRET)[0]
    broken["data"]["ca.key"] = "AAAA"
    world.kube.put(SECRET, broken)
    with pytest.raises(ConfigError, match=r"Secret usbdra/usbdra-ca, ca\.key"):
        await world.part.step()
    assert world.kube.all(SECRET)[0]["data"]["ca.key"] == "AAAA"


async def test_two_writers_never_mix() -> None:
    world = World()
    await world.look()
    world.now += timedelta(days=300)
    other = world.kube.all(SECRET)[0]
    written = []

    def overtake(verb: str, kind: object, item: object) -> None:
        written.append(verb)

    world.kube.after_write = overtake
    get = world.kube.get

    async def late(*args: object, **options: object) -> object:
        found = await get(*args, **options)  # type: ignore[arg-type]
        if args[0] == SECRET:
            world.kube.put(SECRET, other)
        return found

    world.kube.get = late  # type: ignore[method-assign, assignment]
    with pytest.raises(errors.ApiConflict):
        await world.part.step()
    assert written == []


async def test_a_bundle_keeps_foreign_keys_and_loses_foreign_cas() -> None:
    world = World()
    await world.look()
    stranger = World()
    await stranger.look()
    bundle = world.kube.all(CONFIG_MAP)[0]
    theirs = stranger.kube.all(CONFIG_MAP)[0]["data"]["ca.crt"]
    bundle["data"] = {"ca.crt": bundle["data"]["ca.crt"] + theirs, "note": "ours"}
    world.kube.put(CONFIG_MAP, bundle)
    assert await world.believed() == 2
    await world.look()
    assert await world.believed() == 1
    assert world.kube.all(CONFIG_MAP)[0]["data"]["note"] == "ours"
