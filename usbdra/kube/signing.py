# SPDX-License-Identifier: Apache-2.0
"""One CertificateSigningRequest: made, and waited for until somebody has answered it.

Owns the way through the API and back. What is asked for is the caller's, and who approves.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Protocol

from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.types import CSR, Object
from usbdra.kube.verbs import Creates, Lister
from usbdra.kube.watch import Change, Reflector

USAGES = ["digital signature", "client auth", "server auth"]


class Api(Lister, Creates, Protocol):
    """The verb of KubeClient that asking needs, beside those of a watch."""


async def ask(
    api: Api, name: str, request: bytes, signer: str, lifetime: int | None, patience: float
) -> bytes:
    """The certificate's PEM. lifetime in seconds, None for the signer's; patience in seconds.

    Raises Refused with the signer's reason, ApiError; ApiUnavailable when nobody answers in time.
    """
    await create(api, name, request, signer, lifetime)
    try:
        return await answer(api, name, patience)
    except TimeoutError as error:
        raise errors.ApiUnavailable(
            f"certificate request {name}",
            0,
            "NoAnswer",
            f"nobody signed it within {patience:.0f} s; is usbdra controller running?",
        ) from error


async def create(
    api: Api, name: str, request: bytes, signer: str, lifetime: int | None = None
) -> Object:
    """Make the request's object, for a peer's certificate. Raises ApiError."""
    spec: Object = {
        "request": base64.b64encode(request).decode(),
        "signerName": signer,
        "usages": USAGES,
    }
    if lifetime is not None:
        spec["expirationSeconds"] = lifetime
    head = {"apiVersion": CSR.api_version, "kind": CSR.kind}
    return await api.create(CSR, {**head, "metadata": {"name": name}, "spec": spec})


async def answer(api: Api, name: str, patience: float) -> bytes:
    """The certificate's PEM, waited for. Raises Refused with the signer's reason, ApiError,
    TimeoutError."""
    requests = Reflector(api, CSR, fields=f"metadata.name={name}")
    async with asyncio.timeout(patience):
        async for change in requests.run():
            if isinstance(change, Change) and (found := _answer_in(change, name)):
                try:
                    return base64.b64decode(found)
                except ValueError as error:
                    raise Refused("the signer's answer is not base64") from error
    raise AssertionError("a reflector ends by cancellation only")


def _answer_in(change: Change, name: str) -> str | None:
    """The certificate in a request, None while there is no answer. Raises Refused."""
    if change.new is None:
        raise Refused(f"certificate request {name} was deleted before it was answered")
    status = change.new.get("status") or {}
    for one in status.get("conditions") or ():
        if one["type"] in ("Denied", "Failed"):
            raise Refused(f"certificate request {name}: {one.get('message') or one['type']}")
    return status.get("certificate")
