# SPDX-License-Identifier: Apache-2.0
"""The driver's end in a cluster: its agents stop, then its ResourceSlices go.

Owns the order, which nothing else can keep: agents recreate slices that somebody deletes, and what
Helm or kubectl deletes with them takes their rights away before they could clean up. Runs before
an uninstallation only (the chart's Job), so that no restart and no upgrade can lose a slice.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from usbdra.errors import Refused
from usbdra.kube import errors
from usbdra.kube.types import (
    DAEMON_SET,
    DEPLOYMENT,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Object,
)
from usbdra.kube.verbs import Deletes, Lister
from usbdra.kube.watch import Reflector, Synced

log = logging.getLogger(__name__)

SHOWN = 10
"""Claims that a refusal names; the others are counted."""


class Api(Lister, Deletes, Protocol):
    """The verbs of KubeClient that withdrawing needs: those of a watch, and delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is withdrawn: the driver, and where its agents run.

    `agents` is the label selector of the DaemonSet's pods; and of those of `deployment`, the
    controller's, where that publishes for hosts outside the cluster.
    """

    driver: str
    namespace: str
    daemon_set: str
    agents: str
    deployment: str = ""


async def withdraw(
    api: Api, what: Installation, *, force: bool = False, patience: float = 120.0
) -> int:
    """Stop the agents, delete the driver's slices; returns how many there were.

    Agents of nodes that do not answer are waited for `patience` seconds, then left: nothing runs
    there that could write a slice. Repeating it is harmless.

    Raises:
        Refused: pods hold claims with the driver's devices, and `force` was not given: without
            agents their pods cannot end. Nothing was done then.
        ApiError: the API server refused or did not answer; what is done stays done.
    """
    if not force and (held := await _held_claims(api, what.driver)):
        raise Refused(_refusal(held))
    await api.delete(DAEMON_SET, what.daemon_set, what.namespace)
    if what.deployment:
        await api.delete(DEPLOYMENT, what.deployment, what.namespace)
    agents = Reflector(api, POD, what.namespace, labels=what.agents, on_error=_note)
    try:
        async with asyncio.timeout(patience):
            await _agents_gone(agents)
    except TimeoutError:
        nodes = sorted(str(pod["spec"].get("nodeName")) for pod in agents.cache.values())
        log.warning("agents did not end within %.0f s on: %s", patience, ", ".join(nodes))
    return await _delete_slices(api, what.driver)


async def _held_claims(api: Api, driver: str) -> list[Object]:
    """Claims with the driver's devices that pods hold."""
    listed = await api.list(RESOURCE_CLAIM)
    return [
        claim
        for claim in listed.get("items") or []
        if (status := claim.get("status") or {}).get("reservedFor") and _has(status, driver)
    ]


def _has(status: Object, driver: str) -> bool:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return any(result["driver"] == driver for result in devices.get("results") or [])


def _refusal(held: list[Object]) -> str:
    names = [
        f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        f" ({', '.join(user['name'] for user in claim['status']['reservedFor'])})"
        for claim in held
    ]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"{len(names)} claims are in use: {', '.join(names[:SHOWN])}{more}; delete their pods "
        "first: without agents they cannot end"
    )


async def _agents_gone(agents: Reflector) -> None:
    """Follow the agents' pods until there are none."""
    known = False
    async with aclosing(agents.run()) as changes:
        async for change in changes:
            known = known or isinstance(change, Synced)
            if known and not agents.cache:
                return


async def _delete_slices(api: Api, driver: str) -> int:
    listed = await api.list(RESOURCE_SLICE, fields=f"spec.driver={driver}")
    slices = listed.get("items") or []
    for item in slices:
        meta = item["metadata"]
        await api.delete(RESOURCE_SLICE, meta["name"], uid=meta["uid"])
    return len(slices)


def _note(error: errors.ApiError) -> None:
    if isinstance(error, errors.ApiForbidden):
        raise error  # waiting does not help
    log.warning("agents: %s", error)
