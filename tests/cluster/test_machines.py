# SPDX-License-Identifier: Apache-2.0
"""Devices in virtual machines: a real QEMU in an unprivileged pod, on the node without the device.

The guest says on its console what it sees (machine_image.py). It is a machine in an emulated
machine; one test tells the whole story of a device, one that of a machine that moves.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import driver
from tests.cluster.assigning import assign
from tests.cluster.bed import ClusterBed
from tests.cluster.driver import GROUP
from tests.cluster.gadgets import Gadget, Gadgets
from tests.cluster.machine_image import NAME
from tests.cluster.manifests import pod
from tests.cluster.space import Space

VALUES = {"virtualMachines.enabled": "true", "virtualMachines.kind": "Minimal"}
BOOT_SECONDS, SECONDS = 300.0, 120.0
SERIAL, MOVED = "VM000001", "VM000002"
PORTS_IN_USE = "cat /sys/devices/platform/vhci_hcd.0/status*"
QEMU = (
    "qemu-system-x86_64", "-machine", "microvm,pcie=on,rtc=on,pit=on,pic=on",
    # Its time is its instructions: by the clock of a busy node it would do nothing but tick.
    "-accel", "tcg", "-icount", "shift=4", "-cpu", "max", "-m", "96", "-nodefaults", "-no-reboot",
    "-display", "none", "-serial", "stdio",
    "-qmp", "unix:/run/vm/q,server=on,wait=off", "-device", "qemu-xhci,id=xhci,p2=8,p3=8",
    "-kernel", "/boot/kernel", "-initrd", "/boot/initrd",
    "-append", "console=ttyS0 quiet mitigations=off panic=-1",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def machines(usb: ClusterBed) -> Iterator[None]:
    """The driver with virtual machines switched on."""
    with driver.configured(usb, VALUES):
        yield


class Machine:
    """A VirtualMachine and its pod."""

    def __init__(self, space: Space, name: str = "vm") -> None:
        self.space, self.name = space, name

    def start(self, pod_name: str, node: str) -> None:
        """Its QEMU, without any privilege, and with its QMP socket in a volume."""
        made = pod(pod_name, QEMU, node=node)
        made["metadata"]["labels"] = {f"{GROUP}/virtual-machine": self.name}
        made["metadata"]["annotations"] = {f"{GROUP}/qmp": "run/q"}
        (container,) = made["spec"]["containers"]
        container["image"] = NAME
        container["volumeMounts"] = [{"name": "run", "mountPath": "/run/vm"}]
        made["spec"]["volumes"] = [{"name": "run", "emptyDir": {}}]
        self.space.apply(made)
        self.space.run(pod_name)

    def lists(self, *devices: str) -> None:
        """spec.usbDevices."""
        self.space.apply(
            {
                "apiVersion": f"{GROUP}/v1alpha2",
                "kind": "VirtualMachine",
                "metadata": {"name": self.name},
                "spec": {"usbDevices": [{"name": device} for device in devices]},
            }
        )

    def devices(self) -> list[dict[str, Any]]:
        """status.usbDevices, without conditions."""
        words = ("get", f"virtualmachines.{GROUP}", self.name, "-o", "json")
        found = json.loads(self.space.api.kubectl(f"--namespace={self.space.name}", *words))
        entries = found.get("status", {}).get("usbDevices", [])
        return [{k: v for k, v in entry.items() if k != "conditions"} for entry in entries]

    def attached(self) -> None:
        """Wait until the first device of the list is attached, by the machine's own status."""
        self.space.api.kubectl(
            f"--namespace={self.space.name}", "wait", f"virtualmachines.{GROUP}/{self.name}",
            "--for=jsonpath={.status.usbDevices[0].attached}=true", f"--timeout={SECONDS:.0f}s",
            timeout=SECONDS + 10,
        )  # fmt: skip

    def gone(self) -> None:
        """Wait until no attachment is left: claims are given back, holders have ended."""
        self.space.api.kubectl(
            f"--namespace={self.space.name}", "wait", f"usbattachments.{GROUP}", "--all",
            "--for=delete", f"--timeout={SECONDS:.0f}s", timeout=SECONDS + 10,
        )  # fmt: skip


class Console:
    """What a machine's guest says, line by line."""

    def __init__(self, space: Space, pod_name: str) -> None:
        words = ("-n", space.name, "logs", "--follow", pod_name)
        self._process = space.api.stream(*words)
        self._lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self, line: str, seconds: float = SECONDS) -> None:
        """Read on until the guest says this."""
        end = time.monotonic() + seconds
        while line not in self.said[-1:]:
            try:
                self.said.append(self._lines.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                tail = "\n".join(self.said[-20:])
                raise TimeoutError(f"not {line!r} within {seconds:g} s:\n{tail}") from None

    def close(self) -> None:
        """Hear no more."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line.strip())


def begins(gadget: Gadget) -> str:
    """Sum of the beginning of a stick's medium, read past the USB stack."""
    text = gadget.node.sh(f"head -c 65536 {gadget.medium} | sha256sum")
    return text.split()[0]


@pytest.fixture
def machine(space: Space) -> Machine:
    """A machine that runs on node b, and whose guest is up."""
    made = Machine(space)
    made.start("vm-1", "b")
    return made


def test_r64_a_disk_goes_into_a_running_machine_comes_back_three_times_and_leaves(
    usb: ClusterBed, gadgets: Gadgets, machine: Machine, space: Space
) -> None:
    stick = gadgets.plug("a", SERIAL)
    name = gadgets.published(SERIAL)["name"]
    assign(usb, name, space.name)
    console = Console(space, "vm-1")
    try:
        console.wait("guest: ready", BOOT_SECONDS)
        machine.lists(name)
        console.wait(f"guest: usb {SERIAL}@1", SECONDS)
        console.wait(f"guest: disk {begins(stick)}", SECONDS)
        machine.attached()
        assert machine.devices() == [
            {
                "name": name, "attached": True, "ready": True, "hotplugged": True,
                "address": {"bus": 0, "port": 1},
            }
        ]  # fmt: skip
        # R67: the node's own drivers never had it
        assert usb.machine("b").sh("ls /sys/block | grep -c '^sd' || true").strip() == "0"
        for _ in range(3):
            stick.node.call("gadget.remove", SERIAL)
            console.wait("guest: usb")
            stick = gadgets.plug("a", SERIAL)
            console.wait(f"guest: usb {SERIAL}@1", SECONDS)
        machine.lists()
        console.wait("guest: usb", SECONDS)
        machine.gone()
        assert machine.devices() == []
    finally:
        console.close()


def test_a_machine_that_moves_takes_its_device_along_and_leaves_it_when_it_is_deleted(
    usb: ClusterBed, gadgets: Gadgets, machine: Machine, space: Space
) -> None:
    gadgets.plug("a", MOVED)
    name = gadgets.published(MOVED)["name"]
    assign(usb, name, space.name)
    machine.lists(name)
    console = Console(space, "vm-1")
    try:
        console.wait(f"guest: usb {MOVED}@1", BOOT_SECONDS)
    finally:
        console.close()
    machine.attached()
    assert links(usb) == {"a": 0, "b": 1}
    space.delete("pod", "vm-1")
    machine.start("vm-2", "a")  # where the device is plugged in: no link any more
    console = Console(space, "vm-2")
    try:
        console.wait(f"guest: usb {MOVED}@1", BOOT_SECONDS)
        assert links(usb) == {"a": 0, "b": 0}
        space.delete(f"virtualmachines.{GROUP}", machine.name)
        console.wait("guest: usb", SECONDS)
    finally:
        console.close()
    machine.gone()


def links(usb: ClusterBed) -> dict[str, int]:
    """Ports with an attached device, by node."""
    return {name: usb.machine(name).sh(PORTS_IN_USE).count(" 006 ") for name in ("a", "b")}
