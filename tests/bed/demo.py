# SPDX-License-Identifier: Apache-2.0
"""`make demo-kernel`: one USB stick, two machines, step by step in plain words.

Owns the story; the machines are the kernel bed's and everything shown is what the `usbdra`
program in them says. Ends with status 1 when a step does not do what it tells.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bed.kernel_bed import KernelBed
from tests.bed.node import Node

PKI = "/etc/usbdra/pki"
TEXT = "Written on machine b, over the network, to a stick in machine a."


class DemoFailed(Exception):
    """A step did not do what it said."""


@contextmanager
def step(number: int, text: str) -> Iterator[None]:
    """Print what is about to happen, then how long it took."""
    print(f"\n{number}. {text}", flush=True)
    started = time.monotonic()
    yield
    print(f"   ({time.monotonic() - started:.1f} s)", flush=True)


def show(node: Node, command: str, timeout: float = 60) -> str:
    """Run a command on a node, with command and output on the screen."""
    print(f"   {node.name}# {command}", flush=True)
    result = node.run(command, timeout=timeout)
    for line in (result.out + result.err).splitlines():
        print(f"      {line}")
    return result.out


def certificates(a: Node, b: Node) -> None:
    """One CA on machine a, a certificate for each; b gets its files, never the CA's key."""
    show(a, "usbdra pki init")
    for node in (a, b):
        show(a, f"usbdra pki issue {node.name} --host {node.ip}")
        for name in ("ca.crt", "tls.crt", "tls.key"):
            data = a.read(f"{PKI}/nodes/{node.name}/{name}")
            node.write(f"{PKI}/{name}", data, mode=0o600)


def attach(a: Node, b: Node) -> dict[str, Any]:
    """Attach the stick of a on b; returns what `usbdra attach -o json` says."""
    show(b, f"usbdra remote {a.ip}")
    show(b, f"usbdra attach {a.ip} DEMO0001", timeout=120)
    rows = json.loads(b.run("usbdra list -o json").out)
    ports = json.loads(b.run("usbdra ports --used -o json").out)["ports"]
    if rows or len(ports) != 1:
        raise DemoFailed(f"one port should be in use and the device not listed again: {ports}")
    port: dict[str, Any] = ports[0]
    return port


def disk_of(node: Node, busid: str) -> str:
    """/dev/sdX of the device at this bus id."""
    found = node.sh(f"ls -d /sys/bus/usb/devices/{busid}/*/host*/target*/*/block/*").split()
    return f"/dev/{found[0].rpartition('/')[2]}"


def read_and_write(a: Node, b: Node, port: dict[str, Any]) -> None:
    """Compare the whole disk, then write on b and find the text on a's medium."""
    disk = disk_of(b, port["localBusID"])
    there = show(b, f"sha256sum {disk}", timeout=120).split()[0]
    here = show(a, "sha256sum /run/gadget-disks/demo.img", timeout=120).split()[0]
    if there != here:
        raise DemoFailed("the disk read on b is not the medium in a")
    show(b, f"sh -c \"echo '{TEXT}' | dd of={disk} conv=fsync,notrunc bs=512 count=1 status=none\"")
    if TEXT not in show(a, "head -n1 /run/gadget-disks/demo.img"):
        raise DemoFailed("what was written on b did not reach the medium in a")


def main() -> int:
    """Tell the story; returns the exit status."""
    started = time.monotonic()
    print("Two virtual machines, a (Linux 6.12) and b (Linux 6.1), on a network of their own.")
    print("The first run also downloads and builds what they are made of; later runs start here.")
    bed = KernelBed()
    with step(1, "Boot both machines"):
        bed.up()
    try:
        a, b = bed.a, bed.b
        with step(2, "Certificates: machines trust each other by one CA, links are encrypted"):
            certificates(a, b)
        with step(3, "Plug a USB stick into a"):
            a.call("gadget.storage", "demo", 8, serialnumber="DEMO0001", product="Demo stick")
            a.call("usb.wait", "DEMO0001", child="disks")
            show(a, "usbdra list")
        with step(4, "Start the exporter on a"):
            server = a.start("usbdra serve")
            server.wait_for("serving")
            print("   a# usbdra serve")
        with step(5, "Use the stick on b"):
            port = attach(a, b)
        with step(6, "Read it all, write to it"):
            read_and_write(a, b, port)
        with step(7, "Give it back"):
            show(b, f"usbdra detach {port['port']}")
            a.call("usb.wait", "DEMO0001", child="disks")
            show(a, "usbdra list")
            server.stop()
    except Exception as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    finally:
        bed.down()
    print(f"\nDone in {time.monotonic() - started:.0f} s. Nothing is left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
