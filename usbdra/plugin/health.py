# SPDX-License-Identifier: Apache-2.0
"""Health of allocated devices, as the kubelet watches it (KEP 4680).

Owns the board of what is known and its streams. Must not find anything out: the parts that
learn of a lost link or a pulled device write it here. The kubelet forgets what it has not heard
again in time, so each stream repeats itself before that (pkg/kubelet/cm/dra/healthinfo.go).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

from usbdra._pb import dra_health_v1_pb2 as v1
from usbdra._pb import dra_health_v1alpha1_pb2 as v1alpha1
from usbdra.plugin.rpc import Handler, handlers

V1 = "v1.DRAResourceHealth"
V1ALPHA1 = "v1alpha1.DRAResourceHealth"

STALE_SECONDS = 120
"""How long the kubelet may believe what it heard; its default of 30 would wake us more often."""
RESEND_SECONDS = 50.0
MAX_MESSAGE = 1024


class Health(Enum):
    """A device's health, by the number it has on the wire."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """What is known of one published device."""

    pool: str
    device: str
    health: Health
    message: str = ""


class HealthBoard:
    """The health of all devices that have one; watchers get all of it at every change."""

    def __init__(self, resend: float = RESEND_SECONDS) -> None:
        self._resend = resend
        self._devices: dict[tuple[str, str], DeviceHealth] = {}
        self._watchers: set[asyncio.Event] = set()
        self._closed = False

    def set(self, health: DeviceHealth) -> None:
        """Write down a device's health; the same again wakes nobody."""
        key = (health.pool, health.device)
        if self._devices.get(key) != health:
            self._devices[key] = health
            self._wake()

    def remove(self, pool: str, device: str) -> None:
        """Forget a device that no claim has any more."""
        if self._devices.pop((pool, device), None) is not None:
            self._wake()

    def close(self) -> None:
        """End all streams, so that a stopping server need not wait for them."""
        self._closed = True
        self._wake()

    async def watch(self) -> AsyncGenerator[tuple[DeviceHealth, ...], None]:
        """All that is known: now, after each change, and again before it is stale."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while not self._closed:
                changed.clear()
                yield tuple(self._devices.values())
                try:
                    async with asyncio.timeout(self._resend):
                        await changed.wait()
                except TimeoutError:
                    continue  # nothing is new; say it again
        finally:
            self._watchers.discard(changed)

    def _wake(self) -> None:
        for changed in self._watchers:
            changed.set()


class HealthService:
    """NodeWatchResources in both versions, whose messages are the same on the wire."""

    def __init__(self, board: HealthBoard) -> None:
        self._board = board

    def handlers(self) -> tuple[Handler, Handler]:
        """What a gRPC server adds to serve v1 and v1alpha1."""
        service = "DRAResourceHealth"
        return (
            handlers(v1.DESCRIPTOR, service, {"NodeWatchResources": self.watch}),
            handlers(v1alpha1.DESCRIPTOR, service, {"NodeWatchResources": self.watch_alpha}),
        )

    async def watch(
        self, request: v1.NodeWatchResourcesRequest, context: object
    ) -> AsyncGenerator[v1.NodeWatchResourcesResponse, None]:
        """The stream of v1."""
        async with aclosing(self._board.watch()) as states:
            async for devices in states:
                yield v1.NodeWatchResourcesResponse(devices=map(_message, devices))

    async def watch_alpha(
        self, request: v1alpha1.NodeWatchResourcesRequest, context: object
    ) -> AsyncIterator[v1alpha1.NodeWatchResourcesResponse]:
        """The stream of v1alpha1."""
        newer = v1.NodeWatchResourcesRequest()
        async with aclosing(self.watch(newer, context)) as answers:
            async for answer in answers:
                yield v1alpha1.NodeWatchResourcesResponse.FromString(answer.SerializeToString())


def _message(known: DeviceHealth) -> v1.DeviceHealth:
    return v1.DeviceHealth(
        device=v1.DeviceIdentifier(pool_name=known.pool, device_name=known.device),
        health=v1.HealthStatus.Name(known.health.value),
        last_updated_time=int(time.time()),
        health_check_timeout_seconds=STALE_SECONDS,
        message=known.message[:MAX_MESSAGE],
    )
