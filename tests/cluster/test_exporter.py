# SPDX-License-Identifier: Apache-2.0
"""The exporter as a container without privilege: what it has, gives, and what its death costs."""

from __future__ import annotations

from tests.bed.node import Node
from tests.cluster import driver
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer, serial, usb_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

UID = 64241
PORT = 3241
DISK = "/dev/usbdra/usb/block0"
# Rows of the port in state LISTEN: columns are number, local address, remote, state, ..., uid.
LISTENERS = f"awk '$2 ~ /:{PORT:04X}$/ && $4 == \"0A\" {{print $8}}' /proc/net/tcp /proc/net/tcp6"
PIDS = f"for p in /proc/[0-9]*; do [ $(stat -c %u $p) = {UID} ] && echo ${{p#/proc/}}; done; true"


def until(machine: Node, condition: str) -> None:
    """Wait on the node for a shell condition."""
    machine.sh(
        f"for i in $(seq 180); do {condition} && exit 0; sleep 0.5; done; exit 1", timeout=120
    )


def in_exporter(bed: ClusterBed, node: str, script: str) -> str:
    """A shell line in the exporter's container of a node, its status ignored."""
    pods = bed.api.core.list_namespaced_pod(
        driver.NAMESPACE,
        label_selector="app.kubernetes.io/component=agent",
        field_selector=f"spec.nodeName={node}",
    )
    name = next(pod.metadata.name for pod in pods.items if not pod.metadata.deletion_timestamp)
    return bed.api.kubectl(
        "exec", "-n", driver.NAMESPACE, name, "-c", "exporter", "--", "sh", "-c", f"{script}; true"
    )


def test_who_faces_the_network_can_touch_nothing(usb: ClusterBed) -> None:
    owners = usb.machine("a").sh(LISTENERS).split()
    assert set(owners) == {str(UID)}
    status = dict(
        line.split(":", 1)
        for line in in_exporter(usb, "a", "cat /proc/1/status").splitlines()
        if ":" in line
    )
    assert status["Uid"].split() == [str(UID)] * 4
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    tried = in_exporter(
        usb,
        "a",
        "touch /x /run/usbdra-exporter/x; ls /dev/bus /var/run/secrets; "
        "echo 1 > /sys/bus/usb/drivers/usbip-host/match_busid",
    )
    assert tried == ""


def test_a_link_outlives_its_exporter_and_the_device_comes_back(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "EXPORT001", size_mib=8)
    stick.fill()
    manifests = (
        usb_claim("stick", serial("EXPORT001"), childNodes=["block"], owner={"uid": 1000}),
        consumer("reader", "stick", node="b"),
    )
    space.apply(*manifests)
    space.run("reader")
    machine = usb.machine("a")
    assert "TlsCurrRxSw 0" not in " ".join(machine.sh("cat /proc/net/tls_stat").split())
    killed = machine.sh(PIDS).split()
    machine.sh(f"kill -9 {' '.join(killed)}")
    read = space.shell("reader", f"sha256sum {DISK}")
    assert read.split()[0] == stick.sha256()
    until(machine, f'test -n "$({LISTENERS})"')
    assert not set(killed) & set(machine.sh(PIDS).split())
    space.delete("pod", "reader")
    space.apply(consumer("again", "stick", node="b"))
    space.run("again")
