# SPDX-License-Identifier: Apache-2.0
"""Requests answered on an API in memory; the real one is in tests/api."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from tests.fakes.kube import FakeKube
from tests.unit.controller.test_review import RULES, UID, csr, node
from tests.waiting import patience
from usbdra.controller.certificates import Signer
from usbdra.kube.types import CSR, NODE, Object
from usbdra.pki.authority import Pair, make_authority, new_key
from usbdra.pki.request import make_request

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CA = make_authority("usbdra CA", NOW)


async def ca() -> Pair:
    return CA


@asynccontextmanager
async def signer(kube: FakeKube, *, signs: bool = True) -> AsyncIterator[None]:
    part = Signer(kube, RULES, ca if signs else None, timedelta(hours=24), clock=lambda: NOW)
    task = asyncio.create_task(part.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(kube: FakeKube, wanted: Any) -> Object:
    """The request once it is as wanted."""
    async with patience():
        async for _, item in kube.watch(CSR, "0"):
            if wanted(item.get("status") or {}):
                return item
    raise AssertionError("never")


def kinds(item: Object) -> list[str]:
    return [one["type"] for one in item["status"].get("conditions") or ()]


async def test_signed_for_the_agent_of_a_node() -> None:
    kube, key = FakeKube(), new_key()
    kube.put(NODE, node())
    kube.put(CSR, csr(make_request(key, "node-a", UID, ["10.0.0.5"]), expirationSeconds=3600))
    async with signer(kube):
        done = await until(kube, lambda status: "certificate" in status)
    assert kinds(done) == ["Approved"]
    cert = x509.load_pem_x509_certificate(base64.b64decode(done["status"]["certificate"]))
    assert cert.public_key() == key.public_key()
    assert cert.not_valid_after_utc == NOW + timedelta(hours=1)
    cert.verify_directly_issued_by(CA.cert)


async def test_denied_with_the_reason() -> None:
    kube = FakeKube()
    kube.put(CSR, csr())
    async with signer(kube):
        done = await until(kube, lambda status: "conditions" in status)
    (condition,) = done["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Denied", "Refused")
    assert condition["message"] == "node node-a is not in the cluster any more"


async def test_approved_by_another_hand_and_still_refused() -> None:
    kube = FakeKube()
    kube.put(NODE, node())
    forged = csr(username="system:admin")
    forged["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Me"}]}
    kube.put(CSR, forged)
    async with signer(kube):
        done = await until(kube, lambda status: len(status["conditions"]) > 1)
    assert kinds(done) == ["Approved", "Failed"]
    assert "certificate" not in done["status"]


async def test_killed_between_approval_and_signature() -> None:
    kube = FakeKube()
    kube.put(NODE, node())
    half = csr()
    half["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Agent"}]}
    kube.put(CSR, half)
    async with signer(kube):
        done = await until(kube, lambda status: "certificate" in status)
    assert kinds(done) == ["Approved"]


async def test_another_signer_signs_what_was_approved() -> None:
    kube = FakeKube()
    kube.put(NODE, node())
    kube.put(CSR, csr())
    async with signer(kube, signs=False):
        done = await until(kube, lambda status: "conditions" in status)
    assert kinds(done) == ["Approved"]
    assert kube.requests == [("replace", "certificatesigningrequests", "one")]
