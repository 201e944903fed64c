# SPDX-License-Identifier: Apache-2.0
"""News of ended links on a real descriptor: the test tells, the kernel wakes the event loop.

source = FakeEnds()
watch = LinkWatch(source)
source.end(Endpoints(...))
source.overrun()  # ENOBUFS: some were lost
"""

from __future__ import annotations

import socket

from usbdra.types import Endpoints


class FakeEnds:
    """Implements `EndSource`. `error` is raised by the next look."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reader.setblocking(False)
        self._told: list[Endpoints | None] = []
        self.error: OSError | None = None
        self.closed = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def drain(self) -> list[Endpoints | None]:
        if self.error is not None:
            raise self.error
        found = []
        while True:
            try:
                found.append(self._told[int(self._reader.recv(16))])
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.closed = True
        self._reader.close()
        self._writer.close()

    def end(self, link: Endpoints | None) -> None:
        self._told.append(link)
        self._writer.send(b"%d" % (len(self._told) - 1))

    def overrun(self) -> None:
        self.end(None)
