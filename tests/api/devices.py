# SPDX-License-Identifier: Apache-2.0
"""Nodes that publish devices, and waits for objects: what tests of the controller stand on.

Owns the slices it wrote (they go with their Node). Slices are made by the product's own builder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.types import NODE, RESOURCE_SLICE, Kind, Object
from usbdra.kube.watch import Reflector
from usbdra.slices import reconcile
from usbdra.slices.build import SliceOptions, Taint, Visibility, build
from usbdra.slices.publish import Owner
from usbdra.types import Hub, Offer

PORTS = {Hub.HIGH: 8, Hub.SUPER: 8}
SECONDS = 180.0
"""The limit ends a test that is lost; on a busy machine an answer may take this long."""


class PublishingNode:
    """A Node's agent as far as its slices go."""

    def __init__(
        self, admin: KubeClient, name: str, visibility: Visibility = Visibility.NODE
    ) -> None:
        self.name = name
        self._admin = admin
        self._options = SliceOptions(node=name, visibility=visibility)

    async def publish(
        self,
        *offers: Offer,
        taints: Sequence[Taint] = (),
        ports: Mapping[Hub, int] = PORTS,
    ) -> None:
        """Make the API hold just these devices, as the agent's publisher would.

        taints: of every one of them. ports: of this node, by hub.
        """
        uid = str((await self._admin.get(NODE, self.name))["metadata"]["uid"])
        owner = Owner(self.name, uid, self._options.driver)
        options = replace(self._options, taints={offer.name: taints for offer in offers if taints})
        wanted = [owner.own(item) for item in build(offers, ports, options)]
        listed = await self._admin.list(RESOURCE_SLICE, labels=owner.selector)
        for step in reconcile.plan(wanted, listed["items"]):
            await self._carry_out(step)

    async def _carry_out(self, step: reconcile.Step) -> None:
        if isinstance(step, reconcile.Delete):
            await self._admin.delete(RESOURCE_SLICE, step.stored["metadata"]["name"])
        elif step.stored is None:
            await self._admin.create(RESOURCE_SLICE, step.wanted)
        else:
            version = step.stored["metadata"]["resourceVersion"]
            meta = {**step.wanted["metadata"], "resourceVersion": version}
            await self._admin.replace(RESOURCE_SLICE, {**step.wanted, "metadata": meta})


async def until(
    client: KubeClient,
    kind: Kind,
    name: str,
    done: Callable[[Object | None], bool],
    namespace: str | None = None,
    seconds: float = SECONDS,
) -> Object:
    """Follow one object until `done`, which is given None while there is none.

    Returns the object, {} for none. Raises AssertionError with what was seen last.
    """
    key = (namespace or "", name)
    reflector = Reflector(client, kind, namespace, fields=f"metadata.name={name}")
    try:
        async with asyncio.timeout(seconds), aclosing(reflector.run()) as news:
            async for _ in news:
                if done(reflector.cache.get(key)):
                    return reflector.cache.get(key, {})
    except TimeoutError:
        raise AssertionError(f"{kind.kind} {key}: {reflector.cache.get(key)}") from None
    raise AssertionError("a reflector ends only by cancellation")


def condition(item: Object | None, kind: str) -> tuple[str, str]:
    """(status, reason) of a condition, empty texts when it is not there."""
    found: Sequence[dict[str, Any]] = ((item or {}).get("status") or {}).get("conditions") or ()
    return next(((c["status"], c["reason"]) for c in found if c["type"] == kind), ("", ""))


def has(kind: str, reason: str) -> Callable[[Object | None], bool]:
    """A predicate for `until`: the condition has this reason."""
    return lambda item: condition(item, kind)[1] == reason


async def exists(client: KubeClient, kind: Kind, name: str, namespace: str | None = None) -> bool:
    """Whether the object is there now."""
    try:
        await client.get(kind, name, namespace)
    except errors.ApiNotFound:
        return False
    return True
