# SPDX-License-Identifier: Apache-2.0
"""R68: the loop on a fake node: modules that come, go and come back, and a label that follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.kube import FakeKube
from tests.fakes.uevents import FakeUevents
from tests.waiting import patience
from usbdra.discovery.uevent import UeventHub
from usbdra.errors import KernelUnsupported
from usbdra.kube import errors
from usbdra.kube.types import EVENT, NODE
from usbdra.nodesetup.setup import NodeSetup
from usbdra.types import Uevent

RELEASE = "6.12.0-test"
LABEL = "usb.example.com/usbip"


class Host:
    """Module folders below a root; loading makes them appear."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tried: list[str] = []
        self.error: KernelUnsupported | None = None
        self._write("proc/sys/kernel/osrelease", RELEASE)
        self.offer("usbip-core", "usbip-host", "vhci-hcd")

    def offer(self, *names: str) -> None:
        """The kernel's folder has these modules and no others."""
        index = "".join(f"kernel/drivers/{name}.ko:\n" for name in names)
        self._write(f"lib/modules/{RELEASE}/modules.dep", index)

    def load(self, name: str) -> None:
        self.tried.append(name)
        if self.error is not None:
            raise self.error
        (self.root / "sys/module" / name).mkdir(parents=True, exist_ok=True)

    def unload(self, name: str) -> None:
        (self.root / "sys/module" / name).rmdir()

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Running:
    """A NodeSetup at work, and what it told."""

    def __init__(self, host: Host, kube: FakeKube, look_seconds: float = 60.0) -> None:
        self.host, self.kube = host, kube
        self.uevents = FakeUevents()
        self._ready: asyncio.Queue[bool] = asyncio.Queue()
        hub = UeventHub(self.uevents)
        hub.start()
        self._hub = hub
        self._setup = NodeSetup(
            kube,
            host,
            hub,
            node="a",
            group="usb.example.com",
            root=host.root,
            on_ready=self._ready.put_nowait,
            look_seconds=look_seconds,
        )
        self._task = asyncio.create_task(self._setup.run())

    async def until(self, ready: bool) -> None:
        """Until a look found so, with the label as it should be then."""
        async with patience():
            while await self._ready.get() != ready or self.label() != ("true" if ready else None):
                pass

    def news(self, action: str, name: str) -> None:
        self.uevents.send(Uevent(action, f"/module/{name}", "module", None))

    def label(self) -> str | None:
        found = self.kube.objects[("nodes", "", "a")]["metadata"].get("labels", {}).get(LABEL)
        return None if found is None else str(found)

    def reasons(self) -> list[str]:
        found = sorted(self.kube.all(EVENT), key=lambda event: str(event["eventTime"]))
        return [event["reason"] for event in found]

    async def aclose(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._hub.close()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def kube() -> FakeKube:
    fake = FakeKube()
    fake.put(NODE, {"metadata": {"name": "a", "labels": {"other": "x"}}})
    return fake


@pytest.fixture
async def running(host: Host, kube: FakeKube) -> AsyncIterator[Running]:
    one = Running(host, kube)
    yield one
    await one.aclose()


async def test_r68_modules_are_loaded_and_the_label_set(running: Running) -> None:
    await running.until(True)
    assert running.host.tried == ["usbip_core", "usbip_host", "vhci_hcd"]
    assert running.label() == "true"
    assert running.reasons() == ["ModulesLoaded"]
    assert running.kube.objects[("nodes", "", "a")]["metadata"]["labels"]["other"] == "x"


async def test_the_label_follows_the_kernels_news(running: Running) -> None:
    await running.until(True)
    running.host.unload("vhci_hcd")
    running.news("remove", "vhci_hcd")
    await running.until(False)
    assert running.label() is None
    assert running.host.tried.count("vhci_hcd") == 1  # not against the one who unloaded it
    running.host.load("vhci_hcd")
    running.news("add", "vhci_hcd")
    await running.until(True)
    assert running.label() == "true"
    assert running.reasons() == ["ModulesLoaded", "ModulesUnloaded", "ModulesLoaded"]


async def test_a_label_that_somebody_takes_comes_back(running: Running) -> None:
    await running.until(True)
    running.kube.put(NODE, {"metadata": {"name": "a", "labels": {}}})
    await running.until(True)
    assert running.label() == "true"


async def test_a_label_without_modules_is_taken_away(host: Host, kube: FakeKube) -> None:
    kube.put(NODE, {"metadata": {"name": "a", "labels": {LABEL: "true"}}})
    host.error = KernelUnsupported("module usbip_core was not loaded: Key was rejected by service")
    running = Running(host, kube)
    await running.until(False)
    assert running.reasons() == ["ModulesMissing"]
    assert "Key was rejected" in kube.all(EVENT)[0]["note"]
    await running.aclose()


async def test_r68_a_package_that_comes_later_is_found_without_news(
    host: Host, kube: FakeKube
) -> None:
    host.offer("usbip-core", "usbip-host")
    running = Running(host, kube, look_seconds=0.02)
    await running.until(False)
    host.offer("usbip-core", "usbip-host", "vhci-hcd")
    await running.until(True)
    assert running.label() == "true"
    await running.aclose()


async def test_an_api_server_that_is_away_is_told_later(host: Host, kube: FakeKube) -> None:
    kube.fail(errors.ApiUnavailable("get", 503, "ServiceUnavailable", "away"))
    running = Running(host, kube, look_seconds=0.02)
    await running.until(False)
    assert running.label() is None
    kube.fail(None)
    await running.until(True)
    assert running.label() == "true"
    await running.aclose()
