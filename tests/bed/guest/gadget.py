# SPDX-License-Identifier: Apache-2.0
"""Emulated USB devices inside a node: configfs gadgets on dummy_hcd controllers.

Each function makes one device, plugs it in, and returns {"name", "udc"}; `remove(name)` pulls it
out. Speed is "low", "full", "high" or "super". Standard library only; runs in the control server.
"""

import contextlib
import os
import termios
import threading
import time
import tty as modes

ROOT = "/sys/kernel/config/usb_gadget"
DISKS = "/run/gadget-disks"
# report descriptor of a boot keyboard (HID 1.11, appendix B.1)
KEYBOARD = bytes.fromhex(
    "05010906a101050719e029e71500250175019508810295017508810395057501"
    "05081901290591029501750391039506750815002565050719002965810"
    "0c0"
)
SPEEDS = {
    "low": "low-speed",
    "full": "full-speed",
    "high": "high-speed",
    "super": "super-speed",
}
_echoes = set()


def write(path, text):
    """One attribute, one write."""
    with open(path, "w") as f:
        f.write(str(text))


def storage(name, size_mib=16, speed="high", readonly=False, **ids):
    """A USB stick; the medium is a sparse file of the node's disk."""
    os.makedirs(DISKS, exist_ok=True)
    disk = f"{DISKS}/{name}.img"
    with open(disk, "wb") as f:
        f.truncate(size_mib << 20)
    folder = _create(name, "mass_storage", speed, ids)
    write(f"{folder}/lun.0/removable", 1)
    write(f"{folder}/lun.0/ro", int(readonly))
    write(f"{folder}/lun.0/file", disk)
    return _plug(name)


def keyboard(name, speed="low", **ids):
    """A boot keyboard; `press` sends keys."""
    folder = _create(name, "hid", speed, ids)
    write(f"{folder}/protocol", 1)
    write(f"{folder}/subclass", 1)
    write(f"{folder}/report_length", 8)
    with open(f"{folder}/report_desc", "wb") as f:
        f.write(KEYBOARD)
    return _plug(name)


def reports(name):
    """A descriptor that takes the keyboard's reports, for the caller to close."""
    with open(f"{ROOT}/{name}/functions/hid.0/dev") as f:
        major, minor = f.read().strip().split(":")
    path = f"/run/gadget-{name}"
    if not os.path.exists(path):
        os.mknod(path, 0o600 | 0o020000, os.makedev(int(major), int(minor)))
    return os.open(path, os.O_RDWR)


def press(name, *codes):
    """Press and let go keys by HID usage code (4 is the letter a)."""
    fd = reports(name)
    try:
        for code in codes:
            os.write(fd, bytes((0, 0, code, 0, 0, 0, 0, 0)))
            os.write(fd, bytes(8))
    finally:
        os.close(fd)


def serial(name, speed="high", **ids):
    """A serial adapter (CDC ACM) that answers every byte with the same byte."""
    folder = _create(name, "acm", speed, ids)
    made = _plug(name)
    with open(f"{folder}/port_num") as f:
        tty = f"/dev/ttyGS{f.read().strip()}"
    _echoes.add(name)
    threading.Thread(target=_echo, args=(name, tty), daemon=True).start()
    return made


def source(name, speed="high", **ids):
    """Bulk data without end, and a sink for as much: function/f_sourcesink.c, bytes as they lie."""
    folder = _create(name, "SourceSink", speed, ids)
    write(f"{folder}/pattern", 2)
    write(f"{folder}/bulk_buflen", 16384)
    return _plug(name)


def _echo(name, tty):
    """Answer until the gadget is removed. Every disconnect of the host hangs the port up."""
    while name in _echoes:
        with contextlib.suppress(OSError, termios.error):
            fd = os.open(tty, os.O_RDWR | os.O_NOCTTY)
            try:
                modes.setraw(fd)
                while data := os.read(fd, 4096):
                    os.write(fd, data)
            finally:
                os.close(fd)
        time.sleep(0.05)


def _create(name, function, speed, ids):
    """Make a gadget with one function; returns the function's folder."""
    gadget = f"{ROOT}/{name}"
    os.mkdir(gadget)
    write(f"{gadget}/idVendor", ids.get("vendor", "0x1d6b"))
    write(f"{gadget}/idProduct", ids.get("product_id", "0x0104"))
    write(f"{gadget}/bcdDevice", ids.get("bcd", "0x0100"))
    write(f"{gadget}/bcdUSB", {"super": "0x0320", "high": "0x0200"}.get(speed, "0x0110"))
    write(f"{gadget}/max_speed", SPEEDS[speed])
    os.mkdir(f"{gadget}/strings/0x409")
    for attribute, default in (("manufacturer", "usbdra"), ("product", function)):
        write(f"{gadget}/strings/0x409/{attribute}", ids.get(attribute, default))
    if ids.get("serialnumber", name):
        write(f"{gadget}/strings/0x409/serialnumber", ids.get("serialnumber", name))
    os.mkdir(f"{gadget}/configs/c.1")
    folder = f"{gadget}/functions/{function}.0"
    os.mkdir(folder)
    return folder


def _plug(name):
    """Link the function and start the gadget on the first free controller."""
    gadget = f"{ROOT}/{name}"
    (function,) = os.listdir(f"{gadget}/functions")
    os.symlink(f"{gadget}/functions/{function}", f"{gadget}/configs/c.1/{function}")
    udc = free_udcs()[0]
    write(f"{gadget}/UDC", udc)
    return {"name": name, "udc": udc}


def free_udcs():
    """Controllers without a gadget, in order of their number."""
    used = set()
    for gadget in os.listdir(ROOT):
        with open(f"{ROOT}/{gadget}/UDC") as f:
            used.add(f.read().strip())
    return sorted(u for u in os.listdir("/sys/class/udc") if u not in used)


def unplug(name):
    """Pull the device out; `replug` puts it back."""
    write(f"{ROOT}/{name}/UDC", "\n")


def replug(name):
    """Plug the device in again, on the first free controller."""
    udc = free_udcs()[0]
    write(f"{ROOT}/{name}/UDC", udc)
    return {"name": name, "udc": udc}


def remove(name):
    """Pull the device out and forget it. No error when it is not there."""
    gadget = f"{ROOT}/{name}"
    if not os.path.isdir(gadget):
        return
    with open(f"{gadget}/UDC") as f:
        plugged = f.read().strip()
    _echoes.discard(name)
    if plugged:
        unplug(name)
    for function in os.listdir(f"{gadget}/functions"):
        os.unlink(f"{gadget}/configs/c.1/{function}")
        os.rmdir(f"{gadget}/functions/{function}")
    os.rmdir(f"{gadget}/configs/c.1")
    os.rmdir(f"{gadget}/strings/0x409")
    os.rmdir(gadget)
    for left in (f"/run/gadget-{name}", f"{DISKS}/{name}.img"):
        if os.path.exists(left):
            os.unlink(left)


def remove_all():
    """Pull out every gadget."""
    for name in os.listdir(ROOT):
        remove(name)
