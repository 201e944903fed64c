# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: what comes in goes on to ADDRESS:PORT, as from this node.

    relay.py ADDRESS PORT

Whoever is root on a node can do this, or a process on its host's network. Says "port N" when it
listens. Standard library only, and only what starts quickly under emulation.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until the source ends, then tell the sink so."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def serve(near: socket.socket, target: tuple[str, int]) -> None:
    """One connection, both ways."""
    with near, contextlib.suppress(OSError), socket.create_connection(target) as far:
        back = threading.Thread(target=pump, args=(far, near), daemon=True)
        back.start()
        pump(near, far)
        back.join()


def main(address: str, port: str) -> None:
    """Serve until killed."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        print("port", listener.getsockname()[1], flush=True)
        while True:
            near, _ = listener.accept()
            threading.Thread(target=serve, args=(near, (address, int(port))), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
