# SPDX-License-Identifier: Apache-2.0
"""The least that a Prepare of a remote device consists of, by itself and without our code around.

Owns the yardstick of pair.py: two reads of the claim one after the other (the importer's, and the
exporter's live look, which depends on the dialled link), one mutual TLS 1.3 handshake in memory,
two durable writes. It is taken as cold as a Prepare is, once after each round, on the same cores.
"""

from __future__ import annotations

import os
import ssl
import time
from itertools import pairwise
from pathlib import Path

from usbdra.kube.client import KubeClient
from usbdra.kube.types import RESOURCE_CLAIM
from usbdra.state.claims import ClaimRef
from usbdra.transport.ktls import Role
from usbdra.transport.tls import Identity

RECORD = b"x" * 1200
"""As large as a claim's record with one device."""


async def floor(
    api: KubeClient, ref: ClaimRef, disk: Path, ours: Identity, peer: Identity
) -> dict[str, float]:
    """Milliseconds of each part and `total`."""
    marks = [time.monotonic()]
    for _ in range(2):
        await api.get(RESOURCE_CLAIM, ref.name, ref.namespace)
    marks.append(time.monotonic())
    handshake(ours, peer)
    marks.append(time.monotonic())
    for number in range(2):
        write(disk / f"floor-{number}")
    marks.append(time.monotonic())
    parts = [(b - a) * 1e3 for a, b in pairwise(marks)]
    names = ("reads", "handshake", "writes")
    return {**dict(zip(names, parts, strict=True)), "total": sum(parts)}


def handshake(ours: Identity, peer: Identity) -> None:
    """Both ends in memory; OpenSSL alone."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = peer.context(Role.SERVER).ssl.wrap_bio(to_server, to_client, server_side=True)
    client = ours.context(Role.CLIENT).ssl.wrap_bio(to_client, to_server)
    waiting = [client, server]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)


def write(path: Path) -> None:
    """Whole and durable, as state/store.py writes a record."""
    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, RECORD)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
