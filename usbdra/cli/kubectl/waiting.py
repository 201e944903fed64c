# SPDX-License-Identifier: Apache-2.0
"""Waiting until what a command asked for is so.

Owns which condition answers which command, and how that is said. Writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from usbdra.cli.invocation import Invocation
from usbdra.cli.kubectl.views import condition
from usbdra.events import CLUSTER_EVENTS
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import EVENT, Kind, Object
from usbdra.kube.watch import Change, Reflector
from usbdra.resetword import Request

NOBODY = "the controller has not looked at it; does it run?"
NO_AGENT = "no agent has answered; does that of the device's node run?"
NO_LEADER = "the controller has not answered for the device's host; does it run?"

Judge = Callable[[Object], tuple[bool, str]]
"""From an object, {} when it is gone, to whether it has come to that, and the last word on it."""


def tell(
    invocation: Invocation, device: str, done: bool, message: str, *, goes_on: bool = True
) -> int:
    """Print what became of a device; the exit code. `goes_on`: what is not done yet may be soon."""
    text = f"{device}: {message}" if done or not goes_on else f"{device}: not done yet: {message}"
    invocation.line(text, {"device": device, "done": done, "message": message})
    return 0 if done else 1


async def assigned(
    client: KubeClient, contract: Contract, device: str, namespace: str, seconds: float
) -> tuple[bool, str]:
    """Wait until the device is assigned, or free for an empty namespace."""
    wanted = "Assigned" if namespace else "Available"

    def judge(item: Object) -> tuple[bool, str]:
        if not _answered(item):
            return False, NOBODY
        found = condition(item, "Assigned")
        return found["reason"] == wanted, found["message"]

    return await until(client, contract.node_device, device, None, judge, seconds)


async def attached(
    client: KubeClient, contract: Contract, name: str, namespace: str, seconds: float
) -> tuple[bool, str]:
    """Wait until a USBAttachment is attached."""

    def judge(item: Object) -> tuple[bool, str]:
        if not item:
            return False, "the USBAttachment was deleted meanwhile"
        ready, found = condition(item, "Ready"), condition(item, "Attached")
        if ready["status"] == "False":
            return False, ready["message"]
        return found["status"] == "True", found["message"] or NOBODY

    return await until(client, contract.attachment, name, namespace, judge, seconds)


async def gone(
    client: KubeClient, contract: Contract, name: str, namespace: str, seconds: float
) -> tuple[bool, str]:
    """Wait until a USBAttachment is no more, which is when the device is unplugged."""

    def judge(item: Object) -> tuple[bool, str]:
        return not item, condition(item, "Attached")["message"] if item else "detached"

    return await until(client, contract.attachment, name, namespace, judge, seconds)


async def answered(
    client: KubeClient,
    contract: Contract,
    device: str,
    request: Request,
    silence: str,
    seconds: float,
) -> tuple[bool, str]:
    """Wait for the Event by which a request for a reset is answered. silence: what none means.

    Raises ApiForbidden for who may not see Events.
    """
    fields = f"regarding.kind={contract.node_device.kind},regarding.name={device}"
    reflector = Reflector(client, EVENT, CLUSTER_EVENTS, fields=fields, on_error=fail)
    try:
        async with asyncio.timeout(seconds), aclosing(reflector.run()) as news:
            async for event in news:
                item = event.new if isinstance(event, Change) else None
                if item is not None and request.answered_by(str(item.get("note", ""))):
                    text = str(item["note"]).removesuffix(request.note(""))
                    return item["type"] == "Normal", text
    except TimeoutError:
        pass
    return False, silence


async def until(
    client: KubeClient,
    kind: Kind,
    name: str,
    namespace: str | None,
    judge: Judge,
    seconds: float,
) -> tuple[bool, str]:
    """Follow one object until it has come to that, or the time is over.

    Raises ApiError where the API says no.
    """
    reflector = Reflector(client, kind, namespace, fields=f"metadata.name={name}", on_error=fail)
    done, message = False, NOBODY
    try:
        async with asyncio.timeout(seconds), aclosing(reflector.run()) as news:
            async for _ in news:
                done, message = judge(reflector.cache.get((namespace or "", name), {}))
                if done:
                    break
    except TimeoutError:
        pass
    return done, message


def fail(error: errors.ApiError) -> None:
    """For a reflector: raises what a repeat would not mend."""
    if not isinstance(error, errors.ApiUnavailable | errors.ApiExpired):
        raise error


def _answered(item: Object) -> bool:
    """The status is of this very spec, not of one before."""
    seen = (item.get("status") or {}).get("observedGeneration", 0)
    return bool(item) and seen >= item["metadata"].get("generation", 0)
