# SPDX-License-Identifier: Apache-2.0
"""A connected pair of real TCP sockets on loopback."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self


class TcpPair(AbstractContextManager["TcpPair"]):
    """`ours` is given away by the test, `peer` is the other end. Both are closed at the end."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.ours = socket.create_connection(listener.getsockname())
            self.peer, _ = listener.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ours.close()
        self.peer.close()

    def peer_sees_end(self) -> bool:
        """True when the other end was told that the connection is over."""
        self.peer.settimeout(2)
        try:
            return self.peer.recv(1) == b""
        except ConnectionResetError:
            return True
