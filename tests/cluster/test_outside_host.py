# SPDX-License-Identifier: Apache-2.0
"""A host outside the cluster by the steps of docs/outside-hosts.md: real kernels, real TLS, a pod.

The bed is of this file alone: one node, and a machine that is none and has the wheel installed.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bed.bed import NodeSpec
from tests.bed.node import Node
from tests.bed.progress import say, step
from tests.bed.wheel import project_image
from tests.cluster import driver, faults
from tests.cluster.assigning import assign, kubectl_usb
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import assigned_disk
from tests.cluster.conftest import logs_folder
from tests.cluster.faults import DISK, Reading, reader
from tests.cluster.gadgets import Gadgets
from tests.cluster.leftovers import but_place, look_at, wait_clean
from tests.cluster.space import Space
from tests.kernel.conftest import tls_stat
from tests.kernel.product import serving

HOST, NODE = "pi", "b"
VALUES = {"outsideHosts.enabled": "true", "requireAssignment": "true"}
SERIAL = "OUTSIDE1"
WAIT_S = 240.0
Plugin = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    """Node b with the driver, and machine pi beside it."""
    wheel = (("usbdra", project_image("cluster"), "/opt/usbdra"),)
    pi = NodeSpec(HOST, kernel="6.12", drives=wheel)
    spec = driver.spec(kernels={NODE: "6.1"}, outside=(pi,))
    with ClusterBed(spec, logs_folder()) as made:
        with step("installing the driver"):
            driver.install(made, VALUES)
        node = made.machine(NODE).ip
        # as the router of a lab: the controller asks from its pod's address
        made.machine(HOST).sh(f"ip route add {made.nodes[NODE].where.pod_subnet} via {node}")
        yield made


@pytest.fixture
def plugin(bed: ClusterBed, capfd: pytest.CaptureFixture[str]) -> Plugin:
    """Run `kubectl usb` as an administrator; exit code and what it printed."""

    def call(*words: str) -> tuple[int, str]:
        code, out, err = kubectl_usb(bed, capfd, *words)
        sys.stderr.write(err)
        return code, out

    return call


def test_a_pod_has_a_device_of_a_host_outside_and_has_it_again_after_each_fault(
    bed: ClusterBed, plugin: Plugin, tmp_path: Path
) -> None:
    pi, gadgets, space = bed.machine(HOST), Gadgets(bed), Space(bed.api)
    add_host(pi, plugin, tmp_path)
    with serving(pi, timeout=WAIT_S) as server:
        stick = gadgets.plug(HOST, SERIAL, size_mib=4)
        stick.fill()
        name, busid = gadgets.published(SERIAL)["name"], stick.at_home("disks")["busid"]
        before, links = look_at(bed.bed.nodes), encrypted(bed)
        assign(bed, name, space.name)
        space.apply(assigned_disk("stick", SERIAL, space.name), reader("user", "stick", NODE))
        bed.api.wait_pod("user", space.name, timeout=WAIT_S)
        reading = Reading(bed, NODE, space, "user")
        reading.wait(timeout=WAIT_S)

        # The device is the one that is plugged in there, over a link that the kernels encrypt.
        assert space.shell("user", f"sha256sum {DISK}").split()[0] == stick.sha256()
        assert encrypted(bed) == {name: count + 1 for name, count in links.items()}
        code, said = plugin("exporter", "list")
        assert code == 0
        assert said.splitlines()[1].split()[:4] == [HOST, pi.ip, "True", "1"]

        # Its program is killed: the session is the kernels' and goes on, also to the next one.
        server.signal(signal.SIGKILL)
        server.wait()
        reading.wait()
        with serving(pi, timeout=WAIT_S):
            reading.wait()
            bed.api.kubectl("wait", "nusb", name, "--for=condition=Ready", "--timeout=120s")
            assert reading.failures() == []

            # Each end of a link brings the device back into the container that runs.
            with lost(reading):
                pi.sh("ss -K -t '( sport = :3241 )'")
            with lost(reading):
                pi.call("gadget.unplug", SERIAL)
                time.sleep(3)
                pi.call("gadget.replug", SERIAL)
            with lost(reading):
                bed.bed.cut(HOST)
                try:
                    faults.wait_not_ready(space, "stick", "LinkLost")
                    begun = time.monotonic()
                    words = ["--for=condition=Ready=False", "--timeout=180s"]
                    bed.api.kubectl("wait", "nusb", name, *words, timeout=190)
                    say(f"not ready {time.monotonic() - begun:.1f} s after its link was lost")
                finally:
                    bed.bed.restore(HOST)
            space.devices("stick")
            bed.api.kubectl("wait", "nusb", name, "--for=condition=Ready", "--timeout=60s")
            assert space.restarts("user") == 0
            assert space.shell("user", f"sha256sum {DISK}").split()[0] == stick.sha256()

            # Its pod goes: the device is its host's own again, and nothing is left.
            space.delete("pod", "user", "--grace-period=1")
            stick.at_home("disks")
            space.delete("resourceclaim", "stick")
            wait_clean(bed.bed.nodes, but_place(before, HOST, busid), WAIT_S)
            space.remove()
            assert plugin("exporter", "remove", HOST)[0] == 0


def add_host(pi: Node, plugin: Plugin, folder: Path) -> None:
    """The documented steps: request there, sign here, accept there."""
    request = folder / "pi.csr"
    request.write_text(pi.run(["usbdra", "pki", "request", HOST]).out)
    code, signed = plugin("exporter", "add", HOST, "--address", pi.ip, "--csr", str(request))
    if code:  # not signed within its time by a controller that has just been started
        code, signed = plugin("exporter", "add", HOST, "--csr", str(request))
    assert code == 0
    pi.write("/root/pi.pem", signed)
    pi.run(["usbdra", "pki", "accept", "/root/pi.pem"])


@contextlib.contextmanager
def lost(reading: Reading) -> Iterator[None]:
    """What is done inside costs reads; afterwards they succeed again."""
    count = len(reading.failures())
    yield
    deadline = time.monotonic() + WAIT_S
    while len(reading.failures()) == count:
        assert time.monotonic() < deadline, "no read failed"
        time.sleep(0.3)
    reading.wait(timeout=WAIT_S)


def encrypted(bed: ClusterBed) -> dict[str, int]:
    """How many connections of a machine are encrypted by its kernel: the controller's is, too."""
    return {name: tls_stat(bed.machine(name))["TlsCurrTxSw"] for name in (HOST, NODE)}
