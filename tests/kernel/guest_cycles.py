# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: attaches a device of another node and gives it back, again and again.

    guest_cycles.py HOST DEVICE WARM CYCLES

One process, of the product's own importer. After WARM cycles it prints a JSON line with what it
holds, waits for the file GO, does CYCLES more and prints the same again, with the seconds of each.
On the way it says how far it is, and its memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from usbdra.discovery.uevent import NetlinkSource, UeventHub
from usbdra.errors import DeviceBusy
from usbdra.importer.attach import Attacher
from usbdra.importer.dial import dial
from usbdra.transport.ktls import Encryption
from usbdra.transport.tls import Identity, TlsFiles
from usbdra.vhci.driver import VhciDriver
from usbdra.vhci.waiting import Waiter

GO = Path("/run/soak-go")
PORT = 3241
LIMIT_S = 60.0
TOLD = 50
"""Cycles from word to word of how far it is."""


def held() -> dict[str, int]:
    """This process: descriptors, and resident memory in KiB.

    Garbage that waits for its collection is none of it, nor are CPython's lists of freed objects,
    which a full collection empties.
    """
    gc.collect()
    status = Path("/proc/self/status").read_text()
    (rss,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return {"fds": len(os.listdir("/proc/self/fd")), "rss_kib": int(rss)}


class Importer:
    """One node's end, for as long as the process lives."""

    def __init__(self, host: str, device: str, hub: UeventHub) -> None:
        self.host, self.device, self.hub = host, device, hub
        self.identity = Identity(TlsFiles.in_directory(Path("/etc/usbdra/pki")))
        self.vhci = VhciDriver(Path("/"))

    async def cycle(self) -> float:
        """Attach and give back; the seconds of both."""
        start = time.monotonic()
        while True:
            try:
                await self._once()
            except DeviceBusy:  # its own driver is being given back still
                if time.monotonic() - start > LIMIT_S:
                    raise
                await asyncio.sleep(0.05)
                continue
            return round(time.monotonic() - start, 2)

    async def _once(self) -> None:
        link = await dial(self.host, PORT, identity=self.identity, encryption=Encryption.REQUIRED)
        async with link:
            remote = await link.grant(self.device, holder="soak")
            attacher = Attacher(self.vhci, self.hub)
            found = await attacher.attach(link.take_socket(), remote)
        async with Waiter(self.hub) as waiter:
            await self.vhci.detach(found.port, waiter)


async def main(host: str, device: str, warm: int, cycles: int) -> None:
    """See module."""
    hub = UeventHub(NetlinkSource())
    hub.start()
    try:
        importer = Importer(host, device, hub)
        for _ in range(warm):
            await importer.cycle()
        tell(held())
        while not GO.exists():
            await asyncio.sleep(0.05)
        seconds = []
        for number in range(1, cycles + 1):
            seconds.append(await importer.cycle())
            if not number % TOLD:
                print(f"cycle {number}: {held()['rss_kib']} KiB", flush=True)
        tell({**held(), "seconds": seconds})
    finally:
        hub.close()


def tell(facts: dict[str, Any]) -> None:
    """One JSON line."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
