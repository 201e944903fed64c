# SPDX-License-Identifier: Apache-2.0
"""Devices into a machine and out: the conversation, its failures, and what a crash leaves."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.qemu import FakeQemu, short
from usbdra.errors import PlugFailed
from usbdra.hotplug import qemu as module
from usbdra.hotplug.qemu import Address, Plugged, Qemu
from usbdra.hotplug.qmp import MachineGone, QmpClient

NAME, OTHER = "usbdra-one", "usbdra-two"


async def dial(fake: FakeQemu, timeout: float = 5.0) -> QmpClient:
    sock = socket.socket(socket.AF_UNIX)
    with short(fake.path) as path:
        sock.connect(path)
    return await QmpClient.open(sock, timeout)


@pytest.fixture
async def qemu(fake: FakeQemu) -> AsyncIterator[Qemu]:
    client = await dial(fake)
    yield Qemu(client)
    await client.close()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    made = tmp_path / "device"
    made.touch()
    return made


async def plug(qemu: Qemu, node: Path, name: str = NAME, tag: str = "c 1 2") -> Address:
    fd = os.open(node, os.O_RDWR)
    try:
        return await qemu.plug(name, tag, fd)
    finally:
        os.close(fd)


async def test_a_device_goes_in_by_its_descriptor_and_out_again(
    fake: FakeQemu, qemu: Qemu, node: Path
) -> None:
    assert await plug(qemu, node) == Address(0, 1)
    assert fake.devices == {NAME: str(node)}
    assert await qemu.plugged(NAME) == Plugged("c 1 2", Address(0, 1))
    assert await qemu.unplug(NAME)
    assert (fake.devices, fake.sets) == ({}, {})
    assert not await qemu.unplug(NAME)
    assert await qemu.plugged(NAME) is None


async def test_each_has_a_port_of_its_own_and_a_full_bus_says_so(
    fake: FakeQemu, qemu: Qemu, node: Path
) -> None:
    addresses = [await plug(qemu, node, f"usbdra-{n}") for n in range(4)]
    assert [a.port for a in addresses] == [1, 2, 3, 4]
    with pytest.raises(PlugFailed, match=r"bus xhci\.0 of the machine has no free USB port"):
        await plug(qemu, node, "usbdra-5")
    assert len(fake.sets) == 4  # nothing is left of the fifth
    await qemu.unplug("usbdra-1")
    assert await plug(qemu, node, "usbdra-5") == Address(0, 2)


async def test_r64_a_device_that_comes_back_replaces_what_is_left_of_it_every_time(
    fake: FakeQemu, qemu: Qemu, node: Path
) -> None:
    for number in range(3):
        assert await plug(qemu, node, tag=f"c 1 {number}") == Address(0, 1)
        found = await qemu.plugged(NAME)
        assert found is not None
        assert found.tag == f"c 1 {number}"
        assert len(fake.sets) == 1
    order = [c for c in fake.commands if c.startswith("device_")]
    assert order == ["device_add", *["device_del", "device_add"] * 2]


async def test_a_machine_without_a_controller_is_told_what_it_lacks(
    fake: FakeQemu, qemu: Qemu, node: Path
) -> None:
    fake.controller = "ich9-usb-ehci1"
    with pytest.raises(PlugFailed, match="start QEMU with `-device qemu-xhci,id=xhci`"):
        await plug(qemu, node)


async def test_qemus_own_words_are_passed_on(fake: FakeQemu, qemu: Qemu, node: Path) -> None:
    fd = os.open(node, os.O_RDWR)
    with pytest.raises(PlugFailed, match=r"QEMU: device_add: Bus 'other\.0' not found"):
        await qemu.plug(NAME, "c", fd, "other.0")
    os.close(fd)
    assert fake.sets == {}


async def test_a_machine_that_keeps_a_device_is_given_up_in_time(
    fake: FakeQemu, qemu: Qemu, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELETE_TIME", 0.02)
    await plug(qemu, node)
    fake.keeps = True
    with pytest.raises(PlugFailed, match="QEMU did not let go of usbdra-one within"):
        await qemu.unplug(NAME)
    fake.keeps = False
    assert await qemu.unplug(NAME)


async def test_a_second_client_waits_no_longer_than_its_time(fake: FakeQemu, qemu: Qemu) -> None:
    with pytest.raises(PlugFailed, match="is another client on its QMP socket"):
        await dial(fake, timeout=0.05)


async def test_no_answer_and_the_end_are_told_apart(fake: FakeQemu, node: Path) -> None:
    client = await dial(fake, timeout=0.05)
    fake.silent = {"qom-list"}
    with pytest.raises(PlugFailed, match=r"QEMU does not answer qom-list within 0\.05 s"):
        await Qemu(client).plugged(NAME)
    ended = asyncio.Event()
    client.on_closed(ended.set)
    await fake.kill()
    await ended.wait()
    with pytest.raises(MachineGone):
        await Qemu(client).plugged(NAME)
    await client.close()


@pytest.mark.parametrize(
    "said", [b"hello\n", b"[1, 2]\n", b"{" * 3000 + b"\n", b"x" * ((1 << 20) + 70000)]
)
async def test_what_is_not_qmp_ends_the_connection(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    opening = asyncio.create_task(QmpClient.open(ours))
    await asyncio.get_running_loop().sock_sendall(theirs, said)
    with pytest.raises(MachineGone, match="what is not QMP"):
        await opening
    theirs.close()


async def test_odd_answers_are_no_answers(fake: FakeQemu, qemu: Qemu) -> None:
    """Objects of a machine with odd properties, and events that nobody asked for."""
    fake.usb[NAME] = {"port": None, "node": ""}
    found = await qemu.plugged(NAME)
    assert found == Plugged("", Address(0, 0))


async def test_a_set_that_a_crash_left_is_cleaned_up(
    fake: FakeQemu, qemu: Qemu, node: Path
) -> None:
    fake.silent = {"device_add"}
    client = qemu._client
    client._timeout = 0.05
    with pytest.raises(PlugFailed):
        await plug(qemu, node)
    fake.silent = set()
    client._timeout = 5.0
    assert await plug(qemu, node, OTHER) == Address(0, 1)
    assert await plug(qemu, node) == Address(0, 2)
    assert sorted(len(fds) for fds in fake.sets.values()) == [1, 1]
