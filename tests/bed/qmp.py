# SPDX-License-Identifier: Apache-2.0
"""QEMU's machine protocol: the machine's power, and USB devices plugged in and pulled out.

Owns the QMP socket of one machine. Must not know about nodes or networks.
"""

import json
import socket
import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.bed.errors import BedError

REPLY_S = 30.0


class Qmp:
    """One client of a QMP socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(REPLY_S)
        self._socket.connect(str(path))
        self._rest = b""
        self.events: deque[dict[str, Any]] = deque(maxlen=1000)
        self._message()
        self.command("qmp_capabilities")

    def close(self) -> None:
        """Close the socket; the machine goes on."""
        self._socket.close()

    def command(self, name: str, **arguments: Any) -> Any:
        """Run a command and return its result. Raises BedError with QEMU's own text."""
        text = json.dumps({"execute": name, "arguments": arguments})
        self._socket.sendall(text.encode() + b"\n")
        while True:
            message = self._message()
            if "event" in message:
                self.events.append(message)
            elif "error" in message:
                raise BedError(f"QMP {name}: {message['error']['desc']}")
            else:
                return message["return"]

    def wait_event(self, name: str, timeout: float = REPLY_S, **data: Any) -> dict[str, Any]:
        """The next event with this name and data, seen already or to come."""
        limit = time.monotonic() + timeout
        while True:
            while self.events:
                event = self.events.popleft()
                found = event.get("data", {})
                if event["event"] == name and all(found.get(k) == v for k, v in data.items()):
                    return event
            left = limit - time.monotonic()
            if left <= 0:
                raise BedError(f"QMP: no event {name} within {timeout:.0f} s")
            self._socket.settimeout(left)
            try:
                message = self._message()
            finally:
                self._socket.settimeout(REPLY_S)
            self.events.append(message)

    def _message(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            try:
                data = self._socket.recv(65536)
            except TimeoutError as e:
                raise BedError("QMP: QEMU does not answer") from e
            if not data:
                raise BedError("QMP: QEMU has ended")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def plug(self, driver: str, name: str, bus: str, **properties: Any) -> None:
        """Plug in a USB device (driver such as usb-kbd) under a name."""
        self.command("device_add", driver=driver, id=name, bus=bus, **properties)

    def plug_storage(self, name: str, bus: str, image: Path, serial: str) -> None:
        """Plug in a USB stick with a raw image as its medium."""
        node = f"disk-{name}"
        file = {"driver": "file", "filename": str(image)}
        self.command("blockdev-add", driver="raw", **{"node-name": node, "file": file})
        self.plug("usb-storage", name, bus, drive=node, serial=serial, removable=True)

    def unplug(self, name: str) -> None:
        """Pull a device out and wait until QEMU has let go of it."""
        self.command("device_del", id=name)
        self.wait_event("DEVICE_DELETED", device=name)
        node = f"disk-{name}"
        if any(n["node-name"] == node for n in self.command("query-named-block-nodes")):
            self.command("blockdev-del", **{"node-name": node})
