# SPDX-License-Identifier: Apache-2.0
"""attach, detach, remote and watch against a real listener, with the fake kernel below."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.broker import STICK, FakeBroker
from tests.fakes.kernel import FakeKernel, Remote
from tests.fakes.sysfs import SysTree
from tests.unit.cli.conftest import Cli
from usbdra.cli import parts
from usbdra.cli.commands.attach import _ask, _port_of
from usbdra.cli.commands.watch import differences
from usbdra.config import Settings
from usbdra.discovery.snapshot import Snapshot
from usbdra.discovery.uevent import UeventHub
from usbdra.errors import Ambiguous, NotFound
from usbdra.exporter.server import ExporterServer, Listen
from usbdra.types import BusId, DeviceName, RemoteDevice
from usbdra.vhci.driver import VhciDriver


class Exporter:
    """A listener with a FakeBroker on a loop and thread of its own; the CLI has its loop."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.port: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    async def _serve(self) -> None:
        listen = Listen(("127.0.0.1",), 0)
        async with ExporterServer(self.broker, listen, identity=None, plain=True) as server:
            self.port.set_result(server.addresses[0][1])
            await self._stop.wait()

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)
        for sock in self.broker.sessions.values():
            sock.close()
        self._loop.close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter() as running:
        yield running


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    """A node whose vhci and events are the fake kernel's; the exporter's stick comes to it."""
    fake = FakeKernel(tmp_path)
    fake.vhci.remote = Remote(vendor=STICK.vendor_id, product=STICK.product_id)

    loop = asyncio.new_event_loop()

    @contextmanager
    def events() -> Iterator[UeventHub]:
        fake.events.start()
        yield fake.events

    # The fake kernel's timers and sockets live on one loop, over several calls of the program.
    monkeypatch.setattr(asyncio, "run", loop.run_until_complete)
    monkeypatch.setattr(parts, "uevents", events)
    monkeypatch.setattr(parts, "vhci", lambda settings: VhciDriver(fake.root, native=fake.vhci))
    monkeypatch.setenv("USBDRA_ROOT", str(tmp_path))
    monkeypatch.setenv("USBDRA_RUN_DIR", str(tmp_path / "run"))
    yield fake
    loop.run_until_complete(fake.__aexit__(None, None, None))
    loop.close()


def test_attach_prints_phases_and_then_the_device(
    cli: Cli, kernel: FakeKernel, exporter: Exporter
) -> None:
    result = cli("attach", "127.0.0.1", "1-1.4", "--plain", "--port", exporter.port.result(5))
    assert result.code == 0, result.err
    assert [line.split("  ")[-1] for line in result.err.splitlines()] == [
        "connected",
        "device granted",
        "given to the kernel",
        "device enumerated",
        "drivers and nodes ready",
    ]
    assert result.lines == [
        "PORT   HUB    BUSID   NODE                   CHILDREN",
        "0      high   10-1    /dev/bus/usb/010/002   /dev/sda",
    ]


def test_attach_in_json_is_one_object_with_timings(
    cli: Cli, kernel: FakeKernel, exporter: Exporter
) -> None:
    port = exporter.port.result(5)
    result = cli("attach", "127.0.0.1", "1-1.4", "--plain", "--port", port, "-o", "json")
    found = result.json
    assert result.err == ""
    assert (found["port"], found["hub"], found["busID"]) == (0, "high", "10-1")
    assert found["devicePath"] == "/dev/bus/usb/010/002"
    assert found["children"] == [
        {"kind": "block", "path": "/dev/sda", "major": 8, "minor": 0, "interface": 0}
    ]
    assert found["remote"]["busID"] == "1-1.4"
    assert found["unsettled"] == []
    assert list(found["timings"]) == ["connect", "authorise", "attach", "enumerate", "settle"]


def test_attach_then_detach_by_the_bus_id_here(
    cli: Cli, kernel: FakeKernel, exporter: Exporter
) -> None:
    port = exporter.port.result(5)
    assert cli("attach", "127.0.0.1", "1-1.4", "--plain", "--port", port).code == 0
    result = cli("detach", "10-1")
    assert (result.code, result.out) == (0, "port 0 is free\n")
    assert kernel.vhci.sockets == 0


@pytest.mark.parametrize("word", ["4C530001", f"usb-{STICK.vendor_id}-{STICK.product_id}-4c530001"])
def test_detach_by_serial_or_name_of_what_is_attached(
    cli: Cli, kernel: FakeKernel, exporter: Exporter, word: str
) -> None:
    kernel.vhci.remote = replace(kernel.vhci.remote, serial=b"4C530001")
    port = exporter.port.result(5)
    assert cli("attach", "127.0.0.1", "1-1.4", "--plain", "--port", port).code == 0
    assert cli("detach", word, "-o", "json").json == {"port": 0, "detached": True}
    assert kernel.vhci.sockets == 0


def test_detach_by_a_serial_that_two_devices_have(tmp_path: Path) -> None:
    tree = SysTree(tmp_path)
    settings = Settings(root=tree.root, run_dir=tree.root / "run")
    vhci = tree.vhci(1, first_bus=20)
    for port, serial in ((0, b"7"), (1, b"12345"), (2, b"12345")):
        vhci.plug(port, vendor="0781", product="5581").write("serial", serial + b"\n")
    rows = parts.vhci(settings).table().ports
    assert _port_of("7", rows, settings) == 7, "a number that is a port's is a port"
    with pytest.raises(Ambiguous, match="20-2, 20-3"):
        _port_of("12345", rows, settings)


def test_r34_detach_of_a_device_that_went_by_itself_succeeds(cli: Cli, kernel: FakeKernel) -> None:
    result = cli("detach", "3", "-o", "json")
    assert result.json == {"port": 3, "detached": False}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("7-7", "usbdra: no attached device '7-7'; `usbdra ports --used` lists them\n"),
        ("99", "usbdra: no port 99; this node has 16\n"),
    ],
)
def test_detach_of_what_is_not_there(cli: Cli, kernel: FakeKernel, word: str, message: str) -> None:
    result = cli("detach", word)
    assert (result.code, result.err) == (3, message)


def test_a_device_the_exporter_does_not_have(
    cli: Cli, kernel: FakeKernel, exporter: Exporter
) -> None:
    result = cli("attach", "127.0.0.1", "9-9", "--plain", "--port", exporter.port.result(5))
    assert result.code == 3
    assert result.err.splitlines()[-1].startswith("usbdra: ")
    assert "9-9" in result.err
    assert kernel.vhci.sockets == 0


def test_nobody_listens(cli: Cli, kernel: FakeKernel) -> None:
    result = cli("remote", "127.0.0.1", "--plain", "--port", "1")
    assert result.code == 7
    assert result.err == (
        "usbdra: cannot connect to 127.0.0.1 port 1: 127.0.0.1: Connection refused\n"
    )


def test_encrypted_is_the_default_and_says_how_to_get_a_certificate(
    cli: Cli, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("USBDRA_PKI_DIR", str(tmp_path / "pki"))
    for command in (["remote", "host"], ["attach", "host", "1-1"]):
        result = cli(*command)
        assert result.code == 2
        assert "`usbdra pki issue node-a` on the machine with the CA makes one" in result.err


def test_remote_lists_what_a_plain_peer_tells(cli: Cli, exporter: Exporter) -> None:
    port = exporter.port.result(5)
    found = cli("remote", "127.0.0.1", "--plain", "--port", port, "-o", "json").json
    assert [(one["busID"], one["vendorID"], one["speedClass"], one["speed"]) for one in found] == [
        ("1-1.4", "0951", "high", "480"),
        ("2-3", "046d", "low", "1.5"),
    ]
    assert found[1]["interfaceClasses"] == ["03"]


class FakeLink:
    """What `_ask` uses of importer/dial.py's Link."""

    host = "a"

    def __init__(self, *devices: RemoteDevice) -> None:
        self.devices = devices
        self.asked: list[str] = []

    async def inventory(self) -> tuple[RemoteDevice, ...]:
        return self.devices

    async def grant(self, device: str, *, holder: str) -> RemoteDevice:
        self.asked.append(device)
        for one in self.devices:
            if device in (one.name, one.busid):
                return one
        raise NotFound(f"a has no device {device!r}")


async def ask(link: FakeLink, word: str) -> RemoteDevice:
    return await _ask(link, word, False, "b")  # type: ignore[arg-type]


async def test_a_device_is_asked_for_by_name_bus_id_or_serial() -> None:
    for word in ("usb-0951-1666-60a44c", "1-1.4", "60A44C"):
        assert await ask(FakeLink(STICK), word) is STICK


async def test_one_serial_on_two_devices_is_told() -> None:
    twin = replace(STICK, busid=BusId("1-2"), name=DeviceName("usb-twin"))
    with pytest.raises(Ambiguous, match="usb-0951-1666-60a44c, usb-twin"):
        await ask(FakeLink(STICK, twin), "60A44C")


async def test_a_word_that_means_nothing_there_is_told() -> None:
    with pytest.raises(NotFound, match="Some Serial"):
        await ask(FakeLink(STICK), "Some Serial")


def test_watch_tells_what_went_and_what_came() -> None:
    from tests.unit.slices.samples import offer

    old = Snapshot(offers=(offer("a"), offer("b", devnum=1), offer("c")))
    new = Snapshot(offers=(offer("b", devnum=2), offer("c"), offer("d")))
    assert [(what, one.name) for what, one in differences(old, new)] == [
        ("removed", "a"),
        ("changed", "b"),
        ("added", "d"),
    ]
