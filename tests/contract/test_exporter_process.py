# SPDX-License-Identifier: Apache-2.0
"""The unprivileged exporter as a real process: what it gives, what it has, what its death costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from tests.contract.exporting import CLAIM, NAME, World, driver_of
from tests.fakes.exporter import UID, ExporterProcess
from tests.fakes.kernel_stub import USED
from tests.waiting import until
from usbdra.errors import PeerRefused, UsbdraError
from usbdra.transport import ktls
from usbdra.transport.ktls import Encryption


async def test_a_device_from_grant_to_its_return(world: World) -> None:
    async with world.link() as link:
        assert link.encrypted is (
            ktls.ENCRYPTED in ktls.protocols(Encryption.ALLOWED, ktls.native())
        )
        (device,) = await link.inventory()
        assert (device.name, device.available) == (NAME, True)
        await link.grant(NAME, claim=CLAIM)
        with link.take_socket():
            assert world.kernel.stub.state(world.stick) == USED
    await world.given_back()


async def test_it_has_nothing_that_a_device_could_be_touched_with(world: World) -> None:
    """Another user without a capability, no file of ours open but the log and the network."""
    if os.geteuid() == 0:
        assert world.exporter.status("Uid").split() == [str(UID)] * 4
        assert world.exporter.status("Groups") == ""
        assert world.exporter.status("CapEff") == "0" * 16
    assert world.exporter.process is not None
    folder = f"/proc/{world.exporter.process.pid}/fd"
    opened = {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    known = ("socket:", "anon_inode:", "/memfd:", "/dev/null", str(world.exporter.directory))
    assert [one for one in opened if not one.startswith(known)] == []


async def test_killed_with_a_running_link_the_link_goes_on(world: World) -> None:
    async with world.link() as link:
        await link.grant(NAME, claim=CLAIM)
        with link.take_socket() as sock:
            world.exporter.kill()
            await asyncio.to_thread(world.exporter.process.wait)  # type: ignore[union-attr]
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, b"urb")
            with pytest.raises(TimeoutError):  # no end, no reset: the kernel has it
                await asyncio.wait_for(loop.sock_recv(sock, 1), 0.1)
            assert world.kernel.stub.state(world.stick) == USED
    await world.given_back()
    await world.exporter.start()
    async with world.link() as link:
        await link.grant(NAME, claim=CLAIM)
    await world.given_back()


async def test_killed_at_any_step_the_device_comes_back(world: World) -> None:
    for step in ("match_add", "unbind", "bind", "hand_over"):

        def kill(operation: str, step: str = step) -> None:
            if operation == step:
                world.exporter.kill()

        world.kernel.stub.after = kill
        with pytest.raises(UsbdraError):
            async with world.link(answer=0.5) as link:
                await link.grant(NAME, claim=CLAIM)
        await world.given_back()
        world.kernel.stub.after = lambda operation: None
        await world.exporter.start()
        async with world.link() as link:
            await link.grant(NAME, claim=CLAIM)
        await world.given_back()


async def test_a_node_that_is_elsewhere_is_refused_by_the_agent(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.nodes["node-b"] = {"10.0.0.2"}
    async with world.link() as link:
        with pytest.raises(PeerRefused, match=r"127\.0\.0\.1 is no InternalIP of node node-b"):
            await link.grant(NAME, claim=CLAIM)
    assert driver_of(world.stick) == "usb"
    (line,) = (one for one in caplog.records if one.name == "usbdra.audit")
    assert line.__dict__["decision"] == "refused"
    assert line.__dict__["uid"] == "u-1"


async def test_by_signals_it_tells_its_state_and_more_of_its_log(world: World) -> None:
    exporter = world.exporter
    assert exporter.process is not None
    async with world.link() as link:
        await link.inventory()
        exporter.process.send_signal(signal.SIGUSR2)
        await until_said(exporter, '"message": "state"')
    (state,) = (one["state"] for one in lines(exporter) if one["message"] == "state")
    assert state["connections"]["accepted"] == 1
    assert state["connections"]["open"] == 1
    exporter.process.send_signal(signal.SIGUSR1)
    await until_said(exporter, '"to": "debug"')
    assert exporter.process.poll() is None


def lines(exporter: ExporterProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exporter.log.splitlines()]


async def until_said(exporter: ExporterProcess, text: str) -> None:
    await until(lambda: text in exporter.log)
