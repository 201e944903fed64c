# SPDX-License-Identifier: Apache-2.0
"""Devices of a container, told to systemd where it keeps a device program of its own.

Owns that talk. With the systemd cgroup driver a container is a scope with a list of devices, of
which systemd makes a program beside the runtime's whenever it applies the scope anew: at `systemctl
daemon-reload`, and when a resource is changed (a pod is resized in place). Both have to agree then,
so a device that systemd does not know would be out of reach from that moment on. Must not know
claims; what is taken away is gate.py's alone, for one program is enough to deny.
Sources: org.freedesktop.systemd1(5), systemd.resource-control(5); measured in
tests/kernel/test_containers.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from usbdra.containers.rules import MKNOD, READ, WRITE, DeviceNumber

log = logging.getLogger(__name__)

SECONDS = 5.0
"""How long one answer is waited for: a systemd that reloads a thousand units takes a while."""
_LETTERS = ((READ, "r"), (WRITE, "w"), (MKNOD, "m"))
_NAME, _PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_MANAGER = f"{_NAME}.Manager"
_SCOPE = f"{_NAME}.Scope"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_PEER = "org.freedesktop.DBus.Peer"


class Bus(Protocol):
    """A connection to the host's system bus."""

    async def call(
        self, path: str, interface: str, method: str, signature: str = "", *body: Any
    ) -> tuple[Any, ...]:
        """Ask systemd; its answer. Raises OSError, also for an answer that is an error."""
        ...


def unit_of(cgroup: str) -> str | None:
    """The scope that this cgroup is; None when systemd does not keep it."""
    name = cgroup.rpartition("/")[2]
    return name if name.endswith(".scope") else None


def missing(
    allowed: Mapping[str, str], wanted: Mapping[DeviceNumber, int]
) -> list[tuple[str, str]]:
    """What a scope's list lacks, as systemd writes it: path of the number, letters of access."""
    found = []
    for number, access in sorted(wanted.items(), key=str):
        kind = "block" if number.block else "char"
        path = f"/dev/{kind}/{number.major}:{number.minor}"
        have = allowed.get(path, "")
        if any(access & bit and letter not in have for bit, letter in _LETTERS):
            letters = (letter for bit, letter in _LETTERS if access & bit or letter in have)
            found.append((path, "".join(letters)))
    return found


class Scopes:
    """The scopes of this host's systemd. connect: a connection for as long as it is entered, which
    raises OSError."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Bus]]) -> None:
        self._connect = connect

    @classmethod
    def of_host(cls, proc: Path) -> Scopes:
        """Those of the host whose /proc is there. Its bus is found in its first process' root,
        so that none has to be mounted, and one that comes later is found, too."""
        return cls(lambda: system_bus(proc / "1/root/run/dbus/system_bus_socket"))

    def allow(self, unit: str, wanted: Mapping[DeviceNumber, int]) -> None:
        """Let systemd's own program of a scope allow these, now and each time it is made anew.

        Blocks for some milliseconds, SECONDS at most; not for the thread of an event loop. A
        systemd that cannot be asked costs a line in the log; whether the device is out of reach by
        that is for gate.py to see.
        """
        try:
            asyncio.run(self._allow(unit, wanted))
        except OSError as error:
            log.warning(
                "systemd was not told of a device of %s: %s; its next reload may take it away",
                unit,
                error or "no answer",
            )

    async def _allow(self, unit: str, wanted: Mapping[DeviceNumber, int]) -> None:
        async with asyncio.timeout(SECONDS), self._connect() as bus:
            await _allow(bus, unit, wanted)


async def _allow(bus: Bus, unit: str, wanted: Mapping[DeviceNumber, int]) -> None:
    (path,) = await bus.call(_PATH, _MANAGER, "GetUnit", "s", unit)

    async def read(name: str) -> Any:
        ((_, value),) = await bus.call(path, _PROPERTIES, "Get", "ss", _SCOPE, name)
        return value

    allowed = dict(await read("DeviceAllow"))
    if not allowed and await read("DevicePolicy") == "auto":
        return  # it has no program, and must not get one: that would deny all else
    if added := missing(allowed, wanted):
        # Until the unit ends, not for ever; an entry takes the place of an earlier one of its path.
        changes = [("DeviceAllow", ("a(ss)", added))]
        await bus.call(_PATH, _MANAGER, "SetUnitProperties", "sba(sv)", unit, True, changes)
        # systemd applies what was changed before it looks at the next message.
        await bus.call(_PATH, _PEER, "Ping")


@asynccontextmanager
async def system_bus(socket: Path) -> AsyncIterator[Bus]:
    """The bus at this socket. Raises OSError."""
    from jeepney.io.asyncio import RouterClosed, open_dbus_router

    try:
        async with open_dbus_router(f"unix:path={socket}") as router:
            yield _JeepneyBus(router)
    except (EOFError, RouterClosed, ValueError) as error:  # ValueError: not authenticated
        raise OSError(f"the system bus: {str(error) or 'it has gone'}") from error


class _JeepneyBus:
    def __init__(self, router: Any) -> None:
        self._router = router

    async def call(
        self, path: str, interface: str, method: str, signature: str = "", *body: Any
    ) -> tuple[Any, ...]:
        import jeepney

        address = jeepney.DBusAddress(path, _NAME, interface)
        message = jeepney.new_method_call(address, method, signature or None, body)
        answer = await self._router.send_and_get_reply(message)
        if answer.header.message_type is jeepney.MessageType.error:
            raise OSError(f"{method}: {' '.join(map(str, answer.body))}"[:200])
        found: tuple[Any, ...] = answer.body
        return found
