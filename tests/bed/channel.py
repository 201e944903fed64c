# SPDX-License-Identifier: Apache-2.0
"""The host's end of a node's control channel (protocol: guest/control.py).

Owns the socket and the thread that sorts answers by request. Must not interpret commands.
"""

import json
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bed.errors import BedError, NodeDown

LOOK_S = 0.5  # how often a waiting caller looks whether the machine is still sound

Event = dict[str, Any]


class Pending:
    """The answers to one request, in order."""

    def __init__(self, request: int, check: Callable[[], None]) -> None:
        self.id = request
        self.queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._check = check

    def next(self, deadline: float) -> Event:
        """The next event; deadline is on the monotonic clock.

        Raises TimeoutError at the deadline, NodeDown when the node is known to be lost, BedError
        when the node refused the request.
        """
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            try:
                event = self.queue.get(timeout=min(left, LOOK_S))
            except queue.Empty:
                self._check()
                continue
            if event is None:
                self._check()
                raise NodeDown("the node's control channel is closed")
            if event["ev"] == "fail":
                raise BedError(event["text"])
            return event


class Channel:
    """Requests to one node, from any number of threads."""

    def __init__(self, path: Path, check: Callable[[], None]) -> None:
        self._check = check
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lock = threading.Lock()
        self._pending: dict[int, Pending] = {}
        # a client that came before us may have left commands running under its own ids
        self._last = random.randrange(1 << 40)
        self.hello: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"channel {path}", daemon=True)
        self._reader.start()

    def send(self, op: str, **fields: Any) -> Pending:
        """Send a request. The caller takes events until it has the last one, then forgets it."""
        with self._lock:
            self._last += 1
            pending = Pending(self._last, self._check)
            self._pending[pending.id] = pending
            data = json.dumps({"id": pending.id, "op": op, **fields}).encode() + b"\n"
            try:
                self._socket.sendall(data)
            except OSError as e:
                self._check()
                raise NodeDown("the node's control channel is closed") from e
        return pending

    def forget(self, pending: Pending) -> None:
        """No more events of this request are wanted."""
        self._pending.pop(pending.id, None)

    def ask(self, op: str, timeout: float, **fields: Any) -> Event:
        """Send a request that is answered by one event. Raises as Pending.next does."""
        pending = self.send(op, **fields)
        try:
            return pending.next(time.monotonic() + timeout)
        finally:
            self.forget(pending)

    def close(self) -> None:
        """Close the socket; commands in the node go on."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._sort(line)
        for pending in list(self._pending.values()):
            pending.queue.put(None)

    def _sort(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return  # half a line of before we connected
        if event["ev"] == "hello":
            self.hello.put(event["boot"])
        elif pending := self._pending.get(event["id"]):
            pending.queue.put(event)
