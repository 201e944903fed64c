# SPDX-License-Identifier: Apache-2.0
"""The virtual machines of this node that have devices of ours: one connection each.

Owns the connections. One is kept while a machine is in use, because its end is how the end of a
QEMU is heard of, a restart in the same pod too. Must not decide what is plugged in where.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from usbdra.hotplug import podsocket
from usbdra.hotplug.qemu import Qemu
from usbdra.hotplug.qmp import QmpClient

GREETING = 5.0
"""Seconds for a QEMU to greet and for each of its answers."""

Key = tuple[str, str]
"""(UID of the machine's pod, VOLUME/PATH of its socket)."""


@dataclass(slots=True)
class _Machine:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    client: QmpClient | None = None
    users: int = 0


class Machines:
    """See the module. `on_end` hears of each connection that ended by the other side."""

    def __init__(self, kubelet_dir: Path, on_end: Callable[[Key], None]) -> None:
        self._kubelet_dir = kubelet_dir
        self._on_end = on_end
        self._machines: dict[Key, _Machine] = {}

    @asynccontextmanager
    async def talk(self, key: Key) -> AsyncIterator[Qemu]:
        """One conversation at a time with a machine. Raises MachineGone, PlugFailed."""
        machine = self._machines.setdefault(key, _Machine())
        machine.users += 1
        try:
            async with machine.turn:
                if machine.client is None or machine.client.closed:
                    await self._hang_up(machine)
                    sock = podsocket.connect(self._kubelet_dir, *key)
                    machine.client = await QmpClient.open(sock, GREETING)
                    self._watch(key, machine.client)
                yield Qemu(machine.client)
        finally:
            machine.users -= 1
            if not machine.users and (machine.client is None or machine.client.closed):
                self._machines.pop(key, None)
                await self._hang_up(machine)

    async def leave(self, key: Key) -> None:
        """Nothing of ours is in this machine any more: hang up."""
        machine = self._machines.get(key)
        if machine is None or machine.users:
            return
        async with machine.turn:
            if self._machines.get(key) is machine and not machine.users:
                del self._machines[key]
                await self._hang_up(machine)

    async def aclose(self) -> None:
        """Hang up everywhere; what is plugged in stays."""
        machines, self._machines = self._machines, {}
        for machine in machines.values():
            await self._hang_up(machine)

    def _watch(self, key: Key, client: QmpClient) -> None:
        def ended() -> None:
            machine = self._machines.get(key)
            if machine is not None and machine.client is client:
                self._on_end(key)

        client.on_closed(ended)

    async def _hang_up(self, machine: _Machine) -> None:
        client, machine.client = machine.client, None
        if client is not None:
            await client.close()
