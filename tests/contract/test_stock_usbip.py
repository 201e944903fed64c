# SPDX-License-Identifier: Apache-2.0
"""The stock `usbip` of Debian's package, as a client of our listener in plain mode.

Listing needs no kernel module; importing does and is done in the kernel bed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from tests.fakes.broker import FakeBroker
from usbdra.exporter.policy import AccessPolicy
from usbdra.exporter.server import ExporterServer, Listen

LOOPBACK = Listen(addresses=("127.0.0.1",), port=0)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.close()


async def stock_list(server: ExporterServer) -> tuple[int, str]:
    """`usbip list -r`: exit status and all it printed."""
    program = shutil.which("usbip") or shutil.which("usbip", path="/usr/sbin:/sbin")
    assert program, "install Debian's package usbip"
    host, port = server.addresses[0]
    process = await asyncio.create_subprocess_exec(
        program,
        f"--tcp-port={port}",
        "list",
        f"--remote={host}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_stock_client_lists_our_devices(broker: FakeBroker) -> None:
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True) as server:
        status, output = await stock_list(server)
    assert status == 0, output
    assert "(0951:1666)" in output
    assert "(046d:c31c)" in output
    assert "/sys/bus/usb/devices/1-1.4" in output
    assert "(08/06/50)" in output
    assert "(03/01/01)" in output


async def test_stock_client_sees_an_empty_list(broker: FakeBroker) -> None:
    broker.devices = []
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True) as server:
        status, output = await stock_list(server)
    assert status == 0, output
    assert "no exportable devices found on 127.0.0.1" in output


async def test_stock_client_is_told_it_may_not(broker: FakeBroker) -> None:
    policy = AccessPolicy(nodes=frozenset())
    async with ExporterServer(broker, LOOPBACK, identity=None, plain=True, policy=policy) as server:
        status, output = await stock_list(server)
    assert status == 1
    assert "Exported Device List Request failed - Request Failed" in output
