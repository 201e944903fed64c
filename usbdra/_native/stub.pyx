# SPDX-License-Identifier: Apache-2.0
"""The files of usbip-host: which devices it may take, binding, and sessions of one device.

Owns what is written to those files, nothing about when. Must not look at other drivers' state.
No line feed ends any of these writes (drivers/usb/usbip/stub_main.c keeps the text as it came).
"""

cimport usbdra._native.libc as libc
from usbdra._native.oserror cimport c_path, raise_path
from usbdra._native.sysfs cimport read_file, store

cdef enum:
    BUSID_LIMIT = 31  # BUSID_SIZE of include/uapi/linux/usbip.h less its zero byte
    STATUS_LIMIT = 15


cdef bytes checked(bytes busid):
    """The busid, or ValueError: only what the kernel itself uses in names may reach its files."""
    if not 1 <= len(busid) <= BUSID_LIMIT or busid.strip(b"0123456789.:-"):
        raise ValueError(f"not a USB device or interface name: {busid!r}")
    return busid


def match_add(bytes driver_dir not None, bytes busid not None, /):
    """Write `add <busid>` to `match_busid`. ENOMEM: all 16 entries are taken."""
    store("match_add", driver_dir + b"/match_busid", b"add " + checked(busid))


def match_del(bytes driver_dir not None, bytes busid not None, /):
    """Write `del <busid>` to `match_busid`. ENODEV: it was not there."""
    store("match_del", driver_dir + b"/match_busid", b"del " + checked(busid))


def bind(bytes driver_dir not None, bytes busid not None, /):
    """Write the busid to `<driver_dir>/bind`."""
    store("bind", driver_dir + b"/bind", checked(busid))


def unbind(bytes driver_dir not None, bytes busid not None, /):
    """Write the busid to `<driver_dir>/unbind`."""
    store("unbind", driver_dir + b"/unbind", checked(busid))


def rebind(bytes driver_dir not None, bytes busid not None, /):
    """Write the busid to usbip-host's `rebind`: the kernel probes the device's own driver."""
    store("rebind", driver_dir + b"/rebind", checked(busid))


def hand_over(bytes device_dir not None, int sockfd, /):
    """Write the connected socket's number to `usbip_sockfd`. Borrows sockfd."""
    cdef bytes path = device_dir + b"/usbip_sockfd"
    if sockfd < 0:  # -1 is a word of this file: it would end the session instead
        raise_path(libc.EBADF, "hand_over", path)
    store("hand_over", path, b"%d" % sockfd)


def end_session(bytes device_dir not None, /):
    """Write -1 to `usbip_sockfd`. EINVAL: there is no session."""
    store("end_session", device_dir + b"/usbip_sockfd", b"-1")


def status(bytes device_dir not None, /):
    """`usbip_status`: 1 available, 2 used, 3 error. Raises ValueError when it is no number."""
    cdef bytes path = device_dir + b"/usbip_status"
    cdef const char* name = c_path(path)
    cdef char area[STATUS_LIMIT + 1]
    cdef ssize_t have
    with nogil:
        have = read_file(libc.AT_FDCWD, name, area, STATUS_LIMIT)
    if have < 0:
        raise_path(<int>-have, "status", path)
    cdef bytes text = area[:have]
    if not text.strip().isdigit():
        raise ValueError(f"status: {path.decode(errors='replace')} holds {text!r}, not a number")
    return int(text)
