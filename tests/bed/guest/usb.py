# SPDX-License-Identifier: Apache-2.0
"""What the node's kernel says about USB, for tests: devices, children, vhci rows, raw stores.

An oracle that is independent of the product's code. Standard library only.
"""

import glob
import os
import time

DEVICES = "/sys/bus/usb/devices"
VHCI = "/sys/devices/platform/vhci_hcd.0"
STUB = "/sys/bus/usb/drivers/usbip-host"
PATIENCE_S = 45.0
"""For what must come, however busy the machine is; less than the caller waits for an answer."""


def read(path):
    """An attribute without its line feed; None when there is none."""
    try:
        with open(path) as f:
            return f.read().strip("\n")
    except OSError:
        return None


def store(path, text):
    """Exactly one write. An error is returned as {"errno", "error"}, success as {"errno": 0}."""
    try:
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as e:
        return {"errno": e.errno, "error": os.strerror(e.errno)}
    return {"errno": 0}


def driver(path):
    """Name of the driver of a device or interface; None without."""
    try:
        return os.path.basename(os.readlink(f"{path}/driver"))
    except OSError:
        return None


def describe(busid):
    """Facts of one device, all of them of one driver.

    Reading takes milliseconds on an emulated node: a device that is given back meanwhile had
    usbip-host's name and its own host's children in one answer.
    """
    while True:
        facts = _described(busid)
        if facts["driver"] == driver(f"{DEVICES}/{busid}"):
            return facts


def _described(busid):
    path = f"{DEVICES}/{busid}"
    real = os.path.realpath(path)
    names = ("serial", "idVendor", "idProduct", "manufacturer", "product", "speed", "devpath")
    facts = {name: read(f"{path}/{name}") for name in names}
    facts.update(
        busid=busid,
        busnum=int(read(f"{path}/busnum") or 0),
        devnum=int(read(f"{path}/devnum") or 0),
        imported="/vhci_hcd" in real,
        driver=driver(path),
        interfaces={os.path.basename(i): driver(i) for i in glob.glob(f"{path}/{busid}:*")},
        status=read(f"{path}/usbip_status"),
        path=real,
        **children(real),
    )
    return facts


def children(real):
    """Nodes that drivers made below a device."""
    return {
        "disks": sorted(os.path.basename(p) for p in glob.glob(f"{real}/*/host*/*/*/block/*")),
        "ttys": sorted(os.path.basename(p) for p in glob.glob(f"{real}/*/tty/*")),
        "inputs": sorted(os.path.basename(p) for p in glob.glob(f"{real}/*/*/input/*/event*")),
        "cards": sorted(os.path.basename(p) for p in glob.glob(f"{real}/*/sound/card*")),
    }


def devices():
    """All devices that are no root hubs."""
    found = []
    for path in sorted(glob.glob(f"{DEVICES}/*-*")):
        name = os.path.basename(path)
        if ":" not in name and os.path.exists(f"{path}/idVendor"):
            found.append(describe(name))
    return found


def find(serial, imported=False):
    """The device with a serial, local or imported; None when it is not there."""
    for path in glob.glob(f"{DEVICES}/*-*/serial"):
        busid = os.path.basename(os.path.dirname(path))
        if read(path) == serial and ("/vhci_hcd" in os.path.realpath(path)) == imported:
            return describe(busid)
    return None


def wait(serial, imported=False, child=None, gone=False, seconds=PATIENCE_S):
    """Wait until a device is there, with a child of a kind (disks, ttys, ...), or gone."""
    limit = time.monotonic() + seconds
    while True:
        device = find(serial, imported)
        if gone and device is None:
            return None
        if (
            not gone
            and device is not None
            and (child is None or (device[child] and device["driver"]))
        ):
            return device
        if time.monotonic() > limit:
            raise TimeoutError(f"{serial}: {'still' if gone else 'not'} there: {device}")
        time.sleep(0.02)


def wait_status(serial, status, seconds=PATIENCE_S):
    """Wait until an exported device's usbip_status is 1 (available), 2 (used) or 3 (error)."""
    limit = time.monotonic() + seconds
    while True:
        device = find(serial)
        if device is not None and device["status"] == status:
            return device
        if time.monotonic() > limit:
            raise TimeoutError(f"{serial}: usbip_status not {status}: {device}")
        time.sleep(0.02)


def _controller(path):
    """Number in status, status.1, status.10."""
    return int(os.path.basename(path).partition(".")[2] or 0)


def rows():
    """All rows of all status files: [{"file", "hub", "port", "state", "speed", "dev", ...}]."""
    found = []
    for file in sorted(glob.glob(f"{VHCI}/status*"), key=_controller):
        with open(file) as f:
            next(f)
            for line in f:
                hub, port, state, speed, dev, sockfd, busid = line.split()
                found.append(
                    {
                        "file": os.path.basename(file),
                        "hub": hub,
                        "port": int(port),
                        "state": int(state),
                        "speed": int(speed),
                        "dev": int(dev, 16),
                        "sockfd": int(sockfd),
                        "busid": busid,
                    }
                )
    return found


def row(port):
    """One row."""
    return next(r for r in rows() if r["port"] == port)


def wait_row(port, state, seconds=PATIENCE_S):
    """Wait until a port is in a state (4 free, 5 attaching, 6 used, 7 error)."""
    limit = time.monotonic() + seconds
    while row(port)["state"] != state:
        if time.monotonic() > limit:
            raise TimeoutError(f"port {port}: {row(port)}, wanted state {state}")
        time.sleep(0.01)


def used():
    """Ports that are not free."""
    return [r for r in rows() if r["state"] != 4]


def wait_used(count, seconds=PATIENCE_S):
    """Wait until so many ports are not free."""
    limit = time.monotonic() + seconds
    while len(used()) != count:
        if time.monotonic() > limit:
            raise TimeoutError(f"wanted {count} ports in use: {used()}")
        time.sleep(0.05)


def detach_all():
    """Free every port."""
    for r in used():
        store(f"{VHCI}/detach", str(r["port"]))
        wait_row(r["port"], 4)


def bind(busid):
    """Give a device to usbip-host as kernel.md says: match, unbind, bind."""
    results = [store(f"{STUB}/match_busid", f"add {busid}")]
    if driver(f"{DEVICES}/{busid}") == "usb":
        results.append(store("/sys/bus/usb/drivers/usb/unbind", busid))
    results.append(store(f"{STUB}/bind", busid))
    return results


def release(busid):
    """Give a device back to its host's drivers."""
    return [
        store(f"{STUB}/unbind", busid),
        store(f"{STUB}/match_busid", f"del {busid}"),
        store(f"{STUB}/rebind", busid),
    ]


def release_all():
    """Give every device back, and free the entries that pulled devices left in the match table.

    Only `rebind` frees an entry, and only of a device that is there: writing it for another, or
    unloading the module with such entries, crashes the kernel (docs/kernel-facts.md).
    """
    for path in glob.glob(f"{STUB}/*-*"):
        busid = os.path.basename(path)
        if "/vhci_hcd" not in os.path.realpath(path):
            store(f"{DEVICES}/{busid}/usbip_sockfd", "-1")
            release(busid)
    for busid in matched():
        if os.path.exists(f"{DEVICES}/{busid}"):
            bind(busid)
            release(busid)


def matched():
    """Entries of usbip-host's match table, as they are stored."""
    text = read(f"{STUB}/match_busid") or ""
    return [name for name in text.split(" ") if name.strip()]
