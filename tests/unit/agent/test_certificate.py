# SPDX-License-Identifier: Apache-2.0
"""The node's certificate with the real signer on an API in memory; the real API is tests/api."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.kube import FakeKube
from tests.waiting import patience, until
from usbdra.agent import certificate
from usbdra.agent.certificate import CertificateOptions, NodeCertificate
from usbdra.controller.certificates import Signer
from usbdra.controller.review import Rules, requester
from usbdra.kube.types import CONFIG_MAP, CSR, NODE, Kind, Object
from usbdra.pki import authority, held, sets, trust
from usbdra.pki.authority import Pair
from usbdra.types import NodeName

NOW = datetime.now(UTC).replace(microsecond=0)
RULES = Rules("example.com/usbdra-node", requester("usbdra", "usbdra-agent"))
UID = "6a3d2a6e-6f2f-4e8e-9c56-0f2c35b6d9f1"
FIRST = authority.make_authority("usbdra CA one", NOW)
SECOND = authority.make_authority("usbdra CA two", NOW)


class Cluster(FakeKube):
    """Fills in the requester, as the API server does from the token."""

    def __init__(self) -> None:
        super().__init__()
        self.signing = FIRST
        self.now = NOW
        address = {"type": "InternalIP", "address": "10.0.0.5"}
        node: Object = {"metadata": {"name": "node-a", "uid": UID}}
        self.put(NODE, {**node, "status": {"addresses": [address]}})

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        if kind == CSR:
            extra = {
                "authentication.kubernetes.io/node-name": ["node-a"],
                "authentication.kubernetes.io/node-uid": [UID],
            }
            body = {**body, "spec": {**body["spec"], "username": RULES.requester, "extra": extra}}
        return await super().create(kind, body, namespace)

    def believe(self, *pairs: Pair) -> None:
        text = trust.write_bundle(pair.cert for pair in pairs).decode()
        meta = {"name": "usbdra-trust", "namespace": "usbdra"}
        self.put(CONFIG_MAP, {"metadata": meta, "data": {"ca.crt": text}})

    async def ca(self) -> Pair:
        return self.signing

    @property
    def requests_made(self) -> int:
        return sum(
            1 for verb, plural, _ in self.requests if (verb, plural[:4]) == ("create", "cert")
        )


@asynccontextmanager
async def running(*parts: NodeCertificate | Signer) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def signer(kube: Cluster) -> Signer:
    return Signer(kube, RULES, kube.ca, clock=lambda: kube.now)


def agent(kube: Cluster, path: Path, **changes: float) -> NodeCertificate:
    options = CertificateOptions(NodeName("node-a"), path, RULES.signer, "usbdra")
    return NodeCertificate(
        kube, options, clock=lambda: kube.now, backoff=(0.01, 0.05), **changes
    )  # fmt: skip


def current(path: Path) -> held.Held:
    found = held.read_held(path / sets.CURRENT)
    assert found is not None
    return found


async def changed(path: Path, before: bytes | None) -> held.Held:
    """The set once it differs; files tell nobody, so this looks."""
    async with patience():
        while True:
            found = held.read_held(path / sets.CURRENT)
            if found is not None and found.pair.cert_pem() + found.bundle != before:
                return found
            await asyncio.sleep(0.01)


def stamp(found: held.Held) -> bytes:
    return found.pair.cert_pem() + found.bundle


async def test_a_node_gets_its_certificate_and_keeps_it_over_a_restart(tmp_path: Path) -> None:
    kube = Cluster()
    kube.believe(FIRST)
    first = agent(kube, tmp_path)
    async with running(signer(kube), first), patience():
        await first.ready.wait()
    found = current(tmp_path)
    assert trust.holds(found.pair.cert, [FIRST.cert], NOW)
    assert found.bundle == FIRST.cert_pem()
    again = agent(kube, tmp_path)
    async with running(again), patience():
        await again.ready.wait()
    assert kube.requests_made == 1
    assert stamp(current(tmp_path)) == stamp(found)


async def test_the_key_never_leaves_the_node(tmp_path: Path) -> None:
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path)
    async with running(signer(kube), part), patience():
        await part.ready.wait()
    key = current(tmp_path).pair.key_pem().decode().splitlines()[1]
    assert key not in repr(kube.objects)


async def test_a_rotation_of_the_ca_reaches_the_node(tmp_path: Path) -> None:
    """Both are believed, then the new one signs, then the old one is not believed any more."""
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path)
    async with running(signer(kube), part):
        found = await changed(tmp_path, None)
        kube.believe(FIRST, SECOND)
        both = await changed(tmp_path, stamp(found))
        assert (both.pair.cert, kube.requests_made) == (found.pair.cert, 1)
        kube.signing = SECOND
        kube.believe(SECOND)
        new = await changed(tmp_path, stamp(both))
    assert trust.holds(new.pair.cert, [SECOND.cert], NOW)
    assert (new.bundle, kube.requests_made) == (SECOND.cert_pem(), 2)


async def test_renewed_when_its_time_has_come(tmp_path: Path) -> None:
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path)
    async with running(signer(kube), part):
        found = await changed(tmp_path, None)
        kube.now += timedelta(hours=17)
        kube.believe(FIRST)  # news make it look at the clock
        new = await changed(tmp_path, stamp(found))
    assert new.pair.cert.not_valid_after_utc == kube.now + timedelta(hours=24)


async def test_a_clock_that_jumps_is_noticed_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No news and no timer of its own: the certificate was to be renewed in 15 hours."""
    monkeypatch.setattr(certificate, "LOOK_AGAIN", 0.02)
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path)
    async with running(signer(kube), part):
        found = await changed(tmp_path, None)
        kube.now += timedelta(hours=17)
        new = await changed(tmp_path, stamp(found))
    assert new.pair.cert.not_valid_after_utc == kube.now + timedelta(hours=24)


async def test_a_refusal_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path)
    node = kube.all(NODE)[0]
    kube.put(NODE, {**node, "status": {}})
    await kube.get(NODE, "node-a")
    options = Rules(RULES.signer, "somebody else")
    strict = Signer(kube, options, kube.ca, clock=lambda: kube.now)
    async with running(strict, part):
        await until(lambda: kube.requests_made >= 2)
    assert "only somebody else may ask" in caplog.text
    assert not part.ready.is_set()


async def test_without_a_signer_the_reason_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path, answer_time=0.05)
    async with running(part):
        await until(lambda: kube.requests_made >= 2)
    assert "is usbdra controller running?" in caplog.text


async def test_a_broken_bundle_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kube = Cluster()
    kube.believe(FIRST)
    part = agent(kube, tmp_path)
    async with running(signer(kube), part):
        found = await changed(tmp_path, None)
        broken = kube.all(CONFIG_MAP)[0]
        kube.put(CONFIG_MAP, {**broken, "data": {"ca.crt": "nonsense"}})
        await until(lambda: "not a certificate in PEM form" in caplog.text)
        assert stamp(current(tmp_path)) == stamp(found)
