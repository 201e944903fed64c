# SPDX-License-Identifier: Apache-2.0
"""The `usbdra` program on the nodes, as the tests of links use it.

Owns certificates, running exporters and the reading of JSON answers. Must not assert anything.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bed.bed import Bed
from tests.bed.node import Node, Process, Result

PKI = "/etc/usbdra/pki"
# under emulation an attach takes some seconds, nearly all of them Python's own start and drivers
ATTACH_S = 120.0


def certificates(bed: Bed) -> None:
    """One CA, made on the first node, and a certificate for each node."""
    first, *_ = bed.nodes.values()
    first.run("usbdra pki init --force")
    for node in bed.nodes.values():
        hosts = f"--host {node.ip} --host {node.ip6}"
        first.run(f"usbdra pki issue {node.name} {hosts} --force")
        for name in ("ca.crt", "tls.crt", "tls.key"):
            data = first.read(f"{PKI}/nodes/{node.name}/{name}")
            node.write(f"{PKI}/{name}", data, mode=0o600)


@contextmanager
def serving(
    node: Node, *flags: str, env: dict[str, str] | None = None, timeout: float = 60
) -> Iterator[Process]:
    """`usbdra serve` while the block runs."""
    server = node.start(["usbdra", "serve", *flags], env=env)
    try:
        server.wait_for("serving", timeout)
        yield server
    finally:
        server.stop()


def usbdra(node: Node, *words: str, check: bool | int = True, **more: Any) -> Any:
    """The JSON answer of a command; of one that failed, its error: reason, message, exitCode."""
    result: Result = node.run(
        ["usbdra", *words, "-o", "json"], timeout=ATTACH_S, check=check, **more
    )
    if result.rc == 0:
        return json.loads(result.out)
    return json.loads(result.err.splitlines()[-1])["error"]


def attach(node: Node, host: str, device: str, *flags: str) -> dict[str, Any]:
    """Attach a device; what `usbdra attach` says about it."""
    answer: dict[str, Any] = usbdra(node, "attach", host, device, *flags)
    return answer


def detach(node: Node, port: int) -> None:
    """Detach a port."""
    usbdra(node, "detach", str(port))
