# SPDX-License-Identifier: Apache-2.0
"""`make demo`: a Kubernetes cluster of two nodes, one USB stick, a pod that uses it.

Owns the story; cluster and driver are the bed's. Ends with status 1 when a step does not do what
it tells.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import yaml

from tests.bed.demo import DemoFailed, step
from tests.cluster import driver
from tests.cluster.bed import ClusterBed

MANIFEST = driver.ROOT / "deploy/examples/disk/manifest.yaml"
DISK = "/dev/usbdra/usb/block0"
TEXT = "Written by a pod on node b to a stick in node a."


def show(text: str, output: str) -> str:
    """A command and its output on the screen."""
    print(f"   $ {text}")
    for line in output.splitlines():
        print(f"      {line}")
    return output


def kubectl(bed: ClusterBed, *words: str) -> str:
    """Run kubectl with command and output on the screen."""
    return show(f"kubectl {' '.join(words)}", bed.api.kubectl(*words, timeout=120))


def pinned(node: str | None) -> list[dict[str, object]]:
    """The example's objects, its pod bound to a node or to none."""
    objects: list[dict[str, object]] = list(yaml.safe_load_all(MANIFEST.read_text()))
    for item in objects:
        if item["kind"] == "Pod" and node:
            item["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}  # type: ignore[index]
    return objects


def use_on_b(bed: ClusterBed) -> None:
    """The pod on b reads and writes the stick in a."""
    bed.api.apply(pinned("b"))
    bed.api.wait_pod("disk", timeout=150)
    kubectl(bed, "get", "pod", "disk", "-o", "wide")
    kubectl(bed, "exec", "disk", "--", "id")
    kubectl(bed, "exec", "disk", "--", "ls", "-lL", DISK)
    there = kubectl(bed, "exec", "disk", "--", "sha256sum", DISK).split()[0]
    here = bed.machine("a").sh("sha256sum /run/gadget-disks/demo.img").split()[0]
    print(f"   the medium in node a: {here}")
    if there != here:
        raise DemoFailed("the pod does not read the medium in node a")
    script = f"echo '{TEXT}' | dd of={DISK} conv=fsync,notrunc bs=512 count=1 2>/dev/null"
    kubectl(bed, "exec", "disk", "--", "sh", "-c", script)
    if TEXT not in show("head -n1 demo.img   # in node a", _first_line(bed)):
        raise DemoFailed("what the pod wrote did not reach the medium in node a")


def _first_line(bed: ClusterBed) -> str:
    return bed.machine("a").sh("head -c 512 /run/gadget-disks/demo.img | head -n1")


def use_on_a(bed: ClusterBed) -> None:
    """Without a preference the scheduler goes where the stick is; nothing crosses the network."""
    bed.api.apply(pinned(None))
    pod = bed.api.wait_pod("disk", timeout=120)
    if pod.spec.node_name != "a":
        raise DemoFailed(f"the pod landed on node {pod.spec.node_name}")
    kubectl(bed, "get", "pod", "disk", "-o", "wide")
    kubectl(bed, "exec", "disk", "--", "sh", "-c", f"head -c 48 {DISK}")
    used = bed.machine("b").call("usb.used") + bed.machine("a").call("usb.used")
    if used:
        raise DemoFailed(f"ports in use: {used}")


def main() -> int:
    """Tell the story; returns the exit status."""
    started = time.monotonic()
    print("A Kubernetes control plane and two nodes, a and b, in virtual machines.")
    print("The first run builds Kubernetes from its Go modules (about 10 minutes on 2 cores).")
    try:
        with ClusterBed(driver.spec(), logs=Path("build/results/demo")) as bed:
            with step(1, "Install the driver: certificates, node labels, the chart"):
                driver.install(bed)
                kubectl(bed, "get", "pods", "-n", driver.NAMESPACE, "-o", "wide")
            with step(2, "Plug a USB stick into node a"):
                a = bed.machine("a")
                a.call("gadget.storage", "demo", 8, serialnumber="DEMO0001", product="Demo stick")
                a.call("usb.wait", "DEMO0001", child="disks")
                kubectl(bed, "get", "resourceslices")
            with step(3, "A pod on node b claims it, reads it, writes it"):
                use_on_b(bed)
            with step(4, "The pod ends: the stick goes back to node a"):
                bed.api.delete(pinned("b"))
                a.call("usb.wait", "DEMO0001", child="disks")
                print("   its disk is back on node a")
            with step(5, "The same pod without a preference lands on node a"):
                use_on_a(bed)
                bed.api.delete(pinned(None))
    except Exception as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    print(f"\nDone in {time.monotonic() - started:.0f} s. Nothing is left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
