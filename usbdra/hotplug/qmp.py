# SPDX-License-Identifier: Apache-2.0
"""QMP, QEMU's monitor protocol, over a Unix socket: commands, answers, events, descriptors.

Owns one connection and nothing of what the commands mean. What the other end says is data from a
machine that somebody else controls: every line has a limit, every wait an end. Source: QEMU,
docs/interop/qmp-spec.rst.
"""

from __future__ import annotations

import array
import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from usbdra.errors import PlugFailed, UsbdraError

MAX_LINE = 1 << 20
"""Bytes of one message; the longest that we ask for lists some hundred objects."""
TIMEOUT = 5.0
"""Seconds for one answer. QEMU answers in its main loop: milliseconds, or it hangs."""

Event = Mapping[str, Any]


class MachineGone(UsbdraError):
    """There is no QEMU at the socket any more, or it went away: nothing is plugged in there."""

    reason = "NotRunning"


class QmpError(PlugFailed):
    """QEMU refused a command. `kind` is its word for it, `GenericError` for most."""

    def __init__(self, command: str, kind: str, text: str) -> None:
        super().__init__(f"QEMU: {command}: {text}")
        self.kind = kind
        self.text = text


class Silent(PlugFailed):
    """QEMU does not answer in time: it hangs, or serves another client, an earlier agent of this
    node that is about to end or a stranger. What is plugged in is not known then."""


class QmpClient:
    """One connection; use `open`, close with `close`. One command at a time, by itself."""

    def __init__(self, sock: socket.socket, timeout: float = TIMEOUT) -> None:
        """Keeps the socket."""
        sock.setblocking(False)
        self._sock = sock
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._listeners: list[Callable[[Event], None]] = []
        self._greeting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, sock: socket.socket, timeout: float = TIMEOUT) -> QmpClient:
        """A client past greeting and capabilities. Keeps the socket, also when it raises.

        Raises MachineGone, Silent when nobody greets in time: QEMU serves one client.
        """
        client = cls(sock, timeout)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(client._greeting)
            await client.execute("qmp_capabilities")
        except TimeoutError:
            await client.close()
            raise Silent(
                f"QEMU does not greet within {timeout:g} s: is another client on its QMP socket?"
            ) from None
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def closed(self) -> bool:
        """The connection is over."""
        return self._reader.done()

    def on_closed(self, call: Callable[[], None]) -> None:
        """Have `call` called when the connection ends, whoever ends it."""
        self._reader.add_done_callback(lambda _: call())

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Have every event given to `listener`; call the result to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def execute(self, command: str, *, fd: int | None = None, **arguments: Any) -> Any:
        """The command's `return`. Borrows `fd` and sends it along.

        Raises QmpError, MachineGone, Silent when no answer comes in time.
        """
        async with self._turn:
            if self.closed:
                raise MachineGone("the connection to QEMU is over")
            self._number += 1
            number = self._number
            body = {"execute": command, "arguments": arguments, "id": number}
            answer = self._answers[number] = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._timeout):
                    await self._send(json.dumps(body).encode() + b"\n", fd)
                    found = await answer
            except TimeoutError:
                raise Silent(f"QEMU does not answer {command} within {self._timeout:g} s") from None
            finally:
                del self._answers[number]
        if "error" in found:
            error = found["error"] if isinstance(found["error"], dict) else {}
            kind, text = str(error.get("class", "")), str(error.get("desc", ""))
            raise QmpError(command, kind, text[:1000])
        return found.get("return")

    async def close(self) -> None:
        """End the connection; again is no error."""
        self._reader.cancel()
        try:
            await asyncio.wait([self._reader])
        finally:
            self._sock.close()

    async def _send(self, data: bytes, fd: int | None) -> None:
        """One message, a descriptor with its first byte."""
        try:
            if fd is not None:
                rights = array.array("i", [fd])
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
                data = data[self._sock.sendmsg([data], ancillary) :]
            await asyncio.get_running_loop().sock_sendall(self._sock, data)
        except BlockingIOError as error:  # of sendmsg: QEMU reads no more
            raise PlugFailed("QEMU does not read its QMP socket") from error
        except OSError as error:
            raise MachineGone(f"QEMU closed its QMP socket: {error}") from error

    async def _read(self) -> None:
        """Messages until the end; then everybody who waits is told."""
        loop, rest = asyncio.get_running_loop(), b""
        ended = MachineGone("QEMU closed its QMP socket")
        try:
            while data := await loop.sock_recv(self._sock, 65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(line)
                if len(rest) > MAX_LINE:
                    raise ValueError(f"a message of more than {MAX_LINE} bytes")
        except (OSError, ValueError, RecursionError) as error:
            ended = MachineGone(f"the QMP socket says what is not QMP: {error}")
        finally:
            for waiting in (*self._answers.values(), self._greeting):
                if not waiting.done():
                    waiting.set_exception(ended)
                    waiting.exception()  # whoever waits gets it; nobody may be waiting

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message that is no object")
        if "QMP" in message:
            if not self._greeting.done():
                self._greeting.set_result(None)
        elif "event" in message:
            for listener in tuple(self._listeners):
                listener(message)
        else:
            number = message.get("id")
            answer = self._answers.get(number) if isinstance(number, int) else None
            if answer is not None and not answer.done():
                answer.set_result(message)
