# SPDX-License-Identifier: Apache-2.0
"""A QEMU as its QMP socket shows it: greeting, capabilities, QOM, descriptor sets, USB devices.

One client at a time, as a real one; others wait for a greeting. Devices are what their
descriptors are: a set's descriptor that is open no more cannot be plugged in. `tests/contract`
runs the same conversations on it and on a real QEMU.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


@contextmanager
def short(path: Path) -> Iterator[str]:
    """The same path in a form that fits into a Unix socket's address."""
    directory = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@dataclass
class FakeQemu:
    """Start with `start`, end with `kill`. `usb` is what the guest sees: id to port and device."""

    path: Path
    controller: str = "qemu-xhci"
    ports: int = 4
    name: str = "xhci"
    silent: set[str] = field(default_factory=set)
    """Commands that get no answer."""
    no_devices: set[str] = field(default_factory=set)
    """Files that are no USB devices."""
    keeps: bool = False
    """Does not let go of devices: no DEVICE_DELETED."""
    usb: dict[str, dict[str, Any]] = field(default_factory=dict)
    sets: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sock: socket.socket | None = None
        self._socks: set[socket.socket] = set()
        self._fds: list[int] = []
        self._server: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        with short(self.path) as path:
            self._sock.bind(path)
        self._sock.listen(4)
        self._sock.setblocking(False)
        self._server = asyncio.create_task(self._serve(self._sock))

    async def kill(self) -> None:
        """It is gone, with all it had; its socket's file stays, as after a SIGKILL."""
        tasks = [*self._tasks, *([self._server] if self._server else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in (*self._socks, *([self._sock] if self._sock else [])):
            sock.close()
        self._socks.clear()
        self._sock = None
        for fds in self.sets.values():
            for fd, _ in fds:
                os.close(fd)
        self.sets.clear()
        self.usb.clear()

    async def restart(self) -> None:
        """A new process at the same socket."""
        await self.kill()
        self.path.unlink()
        await self.start()

    @property
    def devices(self) -> dict[str, str]:
        """Id to what its descriptor was opened on."""
        return {name: device["node"] for name, device in self.usb.items()}

    async def _serve(self, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(server)
            self._socks.add(sock)
            task = asyncio.create_task(self._client(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _client(self, sock: socket.socket) -> None:
        with suppress(OSError):
            async with self._turn:
                await self._converse(sock)
        self._socks.discard(sock)
        sock.close()

    async def _converse(self, sock: socket.socket) -> None:
        loop, rest = asyncio.get_running_loop(), b""
        version = {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": "fake"}
        await self._say(sock, {"QMP": {"version": version, "capabilities": ["oob"]}})
        ready = False
        while True:
            await _readable(loop, sock)
            try:
                data, fds, _, _ = socket.recv_fds(sock, 65536, 4)
            except BlockingIOError:
                continue
            self._fds += fds
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                command = message["execute"]
                self.commands.append(command)
                if command in self.silent:
                    continue
                if not ready and command != "qmp_capabilities":
                    answer: Answer = _error("CommandNotFound", "negotiate capabilities first")
                else:
                    ready = True
                    answer = self._answer(command, message.get("arguments") or {})
                events = answer.pop("events", [])
                await self._say(sock, {**answer, "id": message.get("id")})
                for event in events:
                    await self._say(sock, event)

    async def _say(self, sock: socket.socket, message: Answer) -> None:
        data = json.dumps(message).encode() + b"\r\n"
        await asyncio.get_running_loop().sock_sendall(sock, data)

    def _answer(self, command: str, arguments: Answer) -> Answer:
        known: dict[str, Callable[[Answer], Answer]] = {
            "qmp_capabilities": lambda _: {"return": {}},
            "qom-list": self._qom_list,
            "qom-get": self._qom_get,
            "add-fd": self._add_fd,
            "remove-fd": self._remove_fd,
            "query-fdsets": self._query_fdsets,
            "device_add": self._device_add,
            "device_del": self._device_del,
        }
        if command not in known:
            return _error("CommandNotFound", f"The command {command} has not been found")
        return known[command](arguments)

    def _qom_list(self, arguments: Answer) -> Answer:
        path = arguments["path"]
        if path == "/machine/peripheral":
            mine = [{"name": self.name, "type": f"child<{self.controller}>"}]
            usb = [{"name": name, "type": "child<usb-host>"} for name in self.usb]
            return {"return": [{"name": "type", "type": "string"}, *mine, *usb]}
        if path == "/machine/peripheral-anon":
            return {"return": [{"name": "type", "type": "string"}]}
        if path == f"/machine/peripheral/{self.name}":
            return {"return": [{"name": f"{self.name}.0", "type": "child<usb-bus>"}]}
        return _error("DeviceNotFound", f"Device '{path}' not found")

    def _qom_get(self, arguments: Answer) -> Answer:
        name = arguments["path"].rpartition("/")[2]
        if name not in self.usb:
            return _error("DeviceNotFound", f"Device '{arguments['path']}' not found")
        return {"return": self.usb[name][arguments["property"]]}

    def _add_fd(self, arguments: Answer) -> Answer:
        if not self._fds:
            return _error("GenericError", "No file descriptor supplied via SCM_RIGHTS")
        fd = self._fds.pop(0)
        number = arguments.get("fdset-id", max(self.sets, default=-1) + 1)
        self.sets.setdefault(number, []).append((fd, arguments.get("opaque", "")))
        return {"return": {"fdset-id": number, "fd": fd}}

    def _remove_fd(self, arguments: Answer) -> Answer:
        number = arguments["fdset-id"]
        if number not in self.sets:
            return _error("GenericError", f"File descriptor named 'fdset-id:{number}' not found")
        for fd, _ in self.sets.pop(number):
            os.close(fd)
        return {"return": {}}

    def _query_fdsets(self, arguments: Answer) -> Answer:
        sets = [
            {"fdset-id": number, "fds": [{"fd": fd, "opaque": opaque} for fd, opaque in fds]}
            for number, fds in self.sets.items()
        ]
        return {"return": sets}

    def _device_add(self, arguments: Answer) -> Answer:
        name, port, bus = arguments["id"], arguments["port"], arguments["bus"]
        if name in self.usb:
            return _error("GenericError", f"Duplicate device ID '{name}'")
        if bus != f"{self.name}.0":
            return _error("GenericError", f"Bus '{bus}' not found")
        taken = {device["port"] for device in self.usb.values()}
        if not 1 <= int(port) <= self.ports or port in taken:
            return _error("GenericError", f"usb port {port} (bus {bus}) not found (in use?)")
        if arguments["driver"] != "usb-host":
            self.usb[name] = {"port": port, "node": ""}
            return {"return": {}}
        number = int(arguments["hostdevice"].removeprefix("/dev/fdset/"))
        if number not in self.sets:
            return _error("GenericError", f"failed to open host usb device {number}")
        node = os.readlink(f"/proc/self/fd/{self.sets[number][0][0]}")
        if node in self.no_devices:
            return _error("GenericError", f"failed to open host usb device {number}")
        self.usb[name] = {"port": port, "node": node}
        return {"return": {}}

    def _device_del(self, arguments: Answer) -> Answer:
        name = arguments["id"]
        if name not in self.usb:
            return _error("DeviceNotFound", f"Device '{name}' not found")
        if self.keeps:
            return {"return": {}}
        del self.usb[name]
        data = {"device": name, "path": f"/machine/peripheral/{name}"}
        stamp = {"seconds": 1, "microseconds": 0}
        return {
            "return": {},
            "events": [{"event": "DEVICE_DELETED", "data": data, "timestamp": stamp}],
        }


def _error(kind: str, text: str) -> Answer:
    return {"error": {"class": kind, "desc": text}}


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    future: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(sock, ready)
    try:
        await future
    finally:
        loop.remove_reader(sock)
