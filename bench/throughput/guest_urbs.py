# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: transfers of a chosen size, so many at a time, by the kernel's own usbfs.

Called in the node's control server, so that no program's start is in the times. The structure and
the numbers are those of include/uapi/linux/usbdevice_fs.h. Standard library only.
"""

import contextlib
import ctypes
import fcntl
import glob
import itertools
import os
import time

SUBMIT, REAP, CLAIM, RELEASE, SETINTERFACE, DISCONNECT = (
    0x8038550A, 0x4008550C, 0x8004550F, 0x80045510, 0x80085504, 0x00005516,
)  # fmt: skip
IOCTL = 0xC0105512
BULK, ISO, ISO_ASAP = 3, 0, 2
WARM_UP = 4
LIBC = ctypes.CDLL(None, use_errno=True)


class Packet(ctypes.Structure):
    """struct usbdevfs_iso_packet_desc"""

    _fields_ = [(name, ctypes.c_uint) for name in ("length", "actual_length", "status")]


class Urb(ctypes.Structure):
    """struct usbdevfs_urb, without its packets"""

    _fields_ = [
        ("type", ctypes.c_ubyte),
        ("endpoint", ctypes.c_ubyte),
        ("status", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("buffer", ctypes.c_void_p),
        ("buffer_length", ctypes.c_int),
        ("actual_length", ctypes.c_int),
        ("start_frame", ctypes.c_int),
        ("number_of_packets", ctypes.c_int),
        ("error_count", ctypes.c_int),
        ("signr", ctypes.c_uint),
        ("usercontext", ctypes.c_void_p),
    ]


@contextlib.contextmanager
def claimed(bus, device, interface, setting=0):
    """The device's file, the interface taken from its driver, which stays away afterwards."""
    fd = os.open(f"/dev/bus/usb/{bus:03d}/{device:03d}", os.O_RDWR)
    try:
        with contextlib.suppress(OSError):  # ENODATA: it has no driver
            fcntl.ioctl(fd, IOCTL, _to_interface(interface, DISCONNECT))
        number = interface.to_bytes(4, "little")
        fcntl.ioctl(fd, CLAIM, number)
        if setting:
            fcntl.ioctl(fd, SETINTERFACE, number + setting.to_bytes(4, "little"))
        yield fd
        if setting:
            fcntl.ioctl(fd, SETINTERFACE, number + bytes(4))
        fcntl.ioctl(fd, RELEASE, number)
    finally:
        os.close(fd)


def _to_interface(interface, code):
    """struct usbdevfs_ioctl without data"""
    return interface.to_bytes(4, "little") + code.to_bytes(4, "little") + bytes(8)


def submit(fd, urb):
    """Give one to the kernel; it must stay where it is until it is reaped."""
    _ioctl(fd, SUBMIT, urb)


def reap(fd):
    """The address of the next one that is done."""
    address = ctypes.c_void_p()
    _ioctl(fd, REAP, address)
    return address.value


def _ioctl(fd, request, where):
    """By the address itself: fcntl.ioctl passes that of a copy, and the kernel remembers it."""
    if LIBC.ioctl(fd, ctypes.c_ulong(request), ctypes.byref(where)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def endpoints(busid):
    """Addresses of the bulk endpoints of the first interface: {"in", "out"}."""
    found = {}
    for path in glob.glob(f"/sys/bus/usb/devices/{busid}/{busid}:1.0/ep_*"):
        with open(f"{path}/type") as kind, open(f"{path}/direction") as way:
            if kind.read().strip() == "Bulk":
                found[way.read().strip()] = int(path.rpartition("_")[2], 16)
    return found


def bulk(bus, device, endpoint, size, depth, seconds, least=3, interface=0):
    """Transfers of `size` bytes, `depth` under way at any time, for so long.

    The first ones are a warm-up, in which TCP's window opens, and not counted; `least` are,
    whatever they take. Returns seconds a transfer, and how many were counted.
    """
    urbs = {}
    for _ in range(depth):
        data = ctypes.create_string_buffer(size)
        urb = Urb(BULK, endpoint, buffer=ctypes.addressof(data), buffer_length=size)
        urbs[ctypes.addressof(urb)] = urb, data
    ends, left = [], max(depth, WARM_UP)
    with claimed(bus, device, interface) as fd:
        for urb, _ in urbs.values():
            submit(fd, urb)
        limit = None
        while limit is None or len(ends) <= least or ends[-1] < limit:
            urb, _ = urbs[reap(fd)]
            now = time.monotonic()
            if urb.status or urb.actual_length != size:
                raise OSError(-urb.status, f"{urb.actual_length} of {size} bytes moved")
            submit(fd, urb)
            left -= 1
            if left <= 0:
                limit = limit or now + seconds
                ends.append(now)
        for _ in urbs:
            reap(fd)
    return [(ends[-1] - ends[0]) / (len(ends) - 1), len(ends) - 1]


def iso(bus, device, interface, endpoint, packet, packets, depth, seconds):
    """A stream of `packets` isochronous packets of `packet` bytes a transfer, one packet a frame.

    Returns the `packets` that were sent, those `lost`, those taken in part (`short`), and the
    `gaps` between the ends of transfers.
    """

    class Stream(ctypes.Structure):
        _fields_ = [("urb", Urb), ("packets", Packet * packets)]

    data = ctypes.create_string_buffer(packet * packets)
    streams = {}
    for _ in range(depth):
        one = Stream(Urb(ISO, endpoint, flags=ISO_ASAP, buffer=ctypes.addressof(data)))
        one.urb.buffer_length, one.urb.number_of_packets = packet * packets, packets
        for each in one.packets:
            each.length = packet
        streams[ctypes.addressof(one)] = one
    ends, lost, short = [], 0, 0
    with claimed(bus, device, interface, setting=1) as fd:
        for one in streams.values():
            submit(fd, one.urb)
        while not ends or ends[-1] < ends[0] + seconds:
            one = streams[reap(fd)]
            ends.append(time.monotonic())
            if one.urb.status:
                lost += packets
            else:
                lost += sum(1 for each in one.packets if each.status)
                short += sum(1 for each in one.packets if each.actual_length < packet)
            submit(fd, one.urb)
        for _ in streams:
            reap(fd)
    gaps = [after - before for before, after in itertools.pairwise(ends)]
    return {"packets": packets * len(gaps), "lost": lost, "short": short, "gaps": gaps}
