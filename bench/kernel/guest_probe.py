# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: one command, timed, with the moments the kernel announced what came of it.

    guest_probe.py KINDS COMMAND...

KINDS is `device`, `device,disk`, or `-` for nothing but the command's end. Prints JSON: `rc`,
`out`, `err`, and seconds since the start of the command for `end` and each kind. Nothing polls:
the kernel's uevents and the end of the process wake it up. Standard library only.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time

LIMIT_S = 90.0
NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
WANTED = {"device": ("usb", "usb_device"), "disk": ("block", "disk")}


def announced(message):
    """The kind of a new imported thing that a uevent tells of, or None."""
    fields = dict(part.split("=", 1) for part in message.decode().split("\0") if "=" in part)
    if fields.get("ACTION") != "add" or "/vhci_hcd." not in fields.get("DEVPATH", ""):
        return None
    seen = (fields.get("SUBSYSTEM"), fields.get("DEVTYPE"))
    return next((kind for kind, wanted in WANTED.items() if wanted == seen), None)


def run(command, kinds):
    """Start the command and wait for its end and for all kinds."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_KOBJECT_UEVENT) as events:
        events.bind((0, KERNEL_GROUP))
        moments = {}
        started = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pidfd = os.pidfd_open(child.pid)
        waiting = [events, pidfd]
        while not {"end", *kinds} <= moments.keys():
            ready, _, _ = select.select(waiting, [], [], LIMIT_S)
            now = time.monotonic() - started
            if not ready:
                raise TimeoutError(f"{command}: only {sorted(moments)} within {LIMIT_S:.0f} s")
            if pidfd in ready:
                moments["end"] = now
                waiting.remove(pidfd)
                if child.wait():
                    break
            if events in ready and (kind := announced(events.recv(65536))):
                moments.setdefault(kind, now)
        out, err = child.communicate()
    return {"rc": child.returncode, "out": out, "err": err, **moments}


if __name__ == "__main__":
    named = sys.argv[1]
    print(json.dumps(run(sys.argv[2:], () if named == "-" else named.split(","))))
