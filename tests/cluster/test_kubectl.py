# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb` where real nodes must answer: a reset by the kernel, a link that is measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.assigning import kubectl_usb
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer, serial, usb_claim
from tests.cluster.driver import GROUP
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

DISK = "/dev/usbdra/usb/block0"
Plugin = Callable[..., tuple[int, str]]


@pytest.fixture
def plugin(usb: ClusterBed, capfd: pytest.CaptureFixture[str]) -> Plugin:
    """Run `kubectl usb` as an administrator; exit code and what was said."""

    def call(*words: str) -> tuple[int, str]:
        code, out, err = kubectl_usb(usb, capfd, *words)
        return code, out + err

    return call


def test_a_device_is_reset_once_and_in_use_by_force_alone_and_its_link_is_measured(
    usb: ClusterBed, gadgets: Gadgets, space: Space, plugin: Plugin, tmp_path: Path
) -> None:
    stick = gadgets.plug("a", "RESET001", size_mib=4)
    stick.fill()
    name = gadgets.published("RESET001")["name"]
    usb.api.kubectl("wait", f"nodeusbdevices.{GROUP}", name, "--for=condition=Ready")

    before = resets(usb)
    assert plugin("reset", name) == (0, f"{name}: reset by node a\n")
    assert resets(usb) == before + 1
    assert stick.at_home("disks")["driver"] == "usb"

    space.apply(
        usb_claim("stick", serial("RESET001"), childNodes=["block"]),
        consumer("reader", "stick", node="b"),
    )
    space.run("reader")
    usb.api.kubectl("wait", f"nodeusbdevices.{GROUP}", name, "--for=condition=Attached")
    code, said = plugin("reset", name)
    assert (code, "--force resets it all the same" in said) == (4, True)
    assert resets(usb) == before + 1
    assert plugin("reset", name, "--force") == (0, f"{name}: reset by node a\n")
    assert resets(usb) == before + 2
    assert space.shell("reader", f"sha256sum {DISK}").split()[0] == stick.sha256()

    usb.api.kubectl(
        "-n", space.name, "wait", "resourceclaim/stick", "--timeout=150s",
        "--for=jsonpath={.status.devices[0].data.link.rttMicroseconds}", timeout=160,
    )  # fmt: skip
    (link,) = (found for found in links(plugin) if found["namespace"] == space.name)
    assert (link["from"], link["to"], link["device"]) == ("a", "b", name)
    assert int(link["rttMicroseconds"]) > 0
    assert link["encrypted"]

    bundle = tmp_path / "bundle.tar.gz"
    assert plugin("support-bundle", "-f", str(bundle))[0] == 0
    assert bundle.stat().st_size > 1000


def test_a_drained_node_gives_its_devices_back_and_takes_no_others(
    usb: ClusterBed, gadgets: Gadgets, space: Space, plugin: Plugin
) -> None:
    """Pods that use node a's device go, then pods on a that use node b's; until undrain."""
    for node, name in (("a", "DRAIN00A"), ("b", "DRAIN00B")):
        gadgets.plug(node, name, size_mib=4).fill()
        gadgets.published(name)
    for name, at in (("DRAIN00A", "b"), ("DRAIN00B", "a")):
        pod = name.lower()
        space.apply(usb_claim(pod, serial(name), childNodes=["block"]), consumer(pod, pod, node=at))
    for pod in ("drain00a", "drain00b"):
        space.run(pod)
    code, said = plugin("drain", "a", "--timeout", "200")
    try:
        assert code == 0, said
        order = [said.index(f"{space.name}/{pod}") for pod in ("drain00a", "drain00b")]
        assert order == sorted(order)
        for node in ("a", "b"):
            assert usb.machine(node).call("usb.used") == []
        space.apply(consumer("again", "drain00a", node="b"))
        space.pending("again")
        code, said = plugin("explain", "again", "-n", space.name)
        assert "its node a is drained; kubectl usb undrain a lets it be used again" in said
    finally:
        assert plugin("undrain", "a")[0] == 0
    space.run("again")


def resets(usb: ClusterBed) -> int:
    """How often the kernel of node a says it has reset a device."""
    lines = usb.machine("a").sh("dmesg").splitlines()
    return sum("reset high-speed USB device" in line for line in lines)


def links(plugin: Plugin) -> list[dict[str, Any]]:
    code, said = plugin("top", "-o", "json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(said)
    return found
