# SPDX-License-Identifier: Apache-2.0
"""Devices of a node without usbip-host stay there, and may leave once the module comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes.sysfs import SysTree
from tests.fakes.uevents import FakeUevents
from usbdra.agent.hostmodules import REASON, HostModules
from usbdra.discovery.inventory import Inventory
from usbdra.discovery.uevent import UeventHub
from usbdra.types import Offer, Uevent


def offer(inventory: Inventory) -> Offer:
    (found,) = inventory.snapshot.offers
    return found


async def test_r68_devices_follow_the_module(tmp_path: Path) -> None:
    SysTree(tmp_path).controller().root_hub(3).plug(3, serial=b"A1")
    source, told = FakeUevents(), asyncio.Event()
    inventory = Inventory(tmp_path, node="a")
    modules = HostModules(tmp_path, inventory, told.set)
    modules.look()
    inventory.resync()
    inventory.retry()
    found = offer(inventory)
    assert (found.usable, found.exportable, found.reason) == (True, False, REASON)
    hub = UeventHub(source)
    hub.start()
    running = asyncio.create_task(modules.run(hub))
    try:
        await told.wait()
        module = tmp_path / "sys/module/usbip_host"
        for exportable in (True, False):
            told.clear()
            module.mkdir(parents=True) if exportable else module.rmdir()
            action = "add" if exportable else "remove"
            source.send(Uevent(action, "/module/usbip_host", "module", None, ()))
            await asyncio.wait_for(told.wait(), 2)
            assert offer(inventory).exportable is exportable
        vhci = tmp_path / "sys/module/vhci_hcd"
        vhci.mkdir(parents=True)
        (vhci / "initstate").write_text("coming\n")
        told.clear()
        source.send(Uevent("add", "/module/vhci_hcd", "module", None, ()))
        await asyncio.sleep(0.01)
        assert not told.is_set(), "its files are not whole yet"
        (vhci / "initstate").write_text("live\n")
        await asyncio.wait_for(told.wait(), 2)
        told.clear()
        source.send(Uevent("add", "/devices/x", "input", None, ()))
        await asyncio.sleep(0.01)
        assert not told.is_set()
    finally:
        hub.close()
        await running
