# SPDX-License-Identifier: Apache-2.0
"""Containers that run: they lose a device and get it back, or get one that they never asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster import driver, faults
from tests.cluster.assigning import assign
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer
from tests.cluster.driver import GROUP
from tests.cluster.faults import Reading, disk_claim, reader
from tests.cluster.gadgets import Gadgets
from tests.cluster.manifests import pod
from tests.cluster.space import Space

DISK = "/dev/usbdra/usb/block0"
REFUSED = "Operation not permitted"


def as_root(made: dict[str, Any]) -> dict[str, Any]:
    """The same pod as most images run: root with the runtime's capabilities, CAP_MKNOD too."""
    made["spec"]["securityContext"] = {}
    made["spec"]["containers"][0]["securityContext"] = {}
    return made


def number(space: Space, name: str, path: str) -> tuple[int, int]:
    """Major and minor of a device as a container sees it."""
    major, minor = space.shell(name, f"stat -L -c '%t %T' {path}").split()
    return int(major, 16), int(minor, 16)


def opens(space: Space, name: str, path: str) -> str:
    """What a container's read of a device ends with; empty when it reads."""
    script = f"dd if={path} of=/dev/null bs=512 count=1 2>&1 >/dev/null || true"
    said = space.shell(name, script)
    return "" if "records in" in said else said


def own(space: Space, name: str, kind: str, numbers: tuple[int, int]) -> str:
    """An attacker's own node of this number, and what a read of it ends with (R60)."""
    path = f"/tmp/own-{kind}-{numbers[0]}-{numbers[1]}"
    space.shell(name, f"test -e {path} || mknod {path} {kind} {numbers[0]} {numbers[1]}")
    return opens(space, name, path)


def test_r60_a_container_reads_on_after_a_loss_and_never_what_another_was_given(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "AGAIN1")
    other = gadgets.plug("a", "OTHER1")  # now: the port of a claim's device stays that device's
    space.apply(disk_claim("mine", stick.serial), reader("user", "mine", "b"))
    space.run("user")
    space.apply(as_root(consumer("attacker", "mine", node="b")))
    space.run("attacker")
    reading = Reading(usb, "b", space, "user")
    reading.wait()
    before = number(space, "attacker", DISK)
    assert own(space, "attacker", "b", before) == ""

    stick.node.call("gadget.unplug", stick.serial)
    faults.wait_not_ready(space, "mine", "LinkLost")
    assert REFUSED in own(space, "attacker", "b", before)

    space.apply(disk_claim("theirs", other.serial), reader("victim", "theirs", "b"))
    space.run("victim")
    Reading(usb, "b", space, "victim").wait()
    taken = number(space, "victim", DISK)
    assert taken == before, "the kernel did not give the number anew: nothing is shown"
    assert REFUSED in own(space, "attacker", "b", taken)

    stick.node.call("gadget.replug", stick.serial)
    space.devices("mine")
    reading.wait()
    assert opens(space, "attacker", DISK) == ""
    assert number(space, "attacker", DISK) != before
    assert REFUSED in own(space, "attacker", "b", taken)
    assert (space.restarts("user"), space.restarts("attacker")) == (0, 0)


@pytest.fixture(scope="module")
def attachments(usb: ClusterBed) -> Any:
    """The driver with USBAttachments switched on."""
    with driver.configured(usb, {"virtualMachines.enabled": "true"}):
        yield


@pytest.mark.usefixtures("attachments")
def test_a_running_pod_gets_a_device_and_nothing_else_and_loses_it(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    tty = gadgets.plug("a", "LIVE1", "serial")
    device = gadgets.published(tty.serial)["device"]
    assign(usb, device, space.name)
    space.apply(as_root(pod("app", node="b")))
    space.run("app")
    attachment = {
        "apiVersion": f"{GROUP}/v1alpha2",
        "kind": "USBAttachment",
        "metadata": {"name": "live"},
        "spec": {"device": device, "pod": {"name": "app"}},
    }
    space.apply(attachment)
    kind, here = f"usbattachments.{GROUP}", f"--namespace={space.name}"
    usb.api.kubectl(
        here, "wait", f"{kind}/live", "--for=condition=Attached", "--timeout=120s", timeout=130
    )
    found = json.loads(usb.api.kubectl(here, "get", kind, "live", "-o", "json"))
    (reason,) = [c["reason"] for c in found["status"]["conditions"] if c["type"] == "Attached"]
    assert reason == "AttachedToPod"
    major, minor = number(space, "app", "/dev/usbdra/live/device")
    assert space.shell("app", "ls /dev/usbdra/live").split() == ["device", "tty0"]
    read = "head -c 18 /dev/usbdra/live/device | wc -c"
    assert space.shell("app", read) == "18"
    assert space.shell("app", "exec 3<>/dev/usbdra/live/tty0 && echo open") == "open"
    assert REFUSED in own(space, "app", "c", (major, minor + 1))
    assert REFUSED in own(space, "app", "c", (major, minor - 1))

    space.delete(kind, "live", "--timeout=120s")
    assert REFUSED in own(space, "app", "c", (major, minor))
    assert (
        space.shell("app", "ls /dev/usbdra 2>/dev/null; ls /dev/bus/usb/*/* 2>/dev/null; true")
        == ""
    )
    assert space.restarts("app") == 0
    tty.at_home("ttys")
