# SPDX-License-Identifier: Apache-2.0
def match_add(driver_dir: bytes, busid: bytes, /) -> None:
    """Write `add <busid>` to `match_busid` (drivers/usb/usbip/stub_main.c; 16 entries)."""

def match_del(driver_dir: bytes, busid: bytes, /) -> None:
    """Write `del <busid>` to `match_busid`."""

def bind(driver_dir: bytes, busid: bytes, /) -> None:
    """Write the busid to `<driver_dir>/bind`."""

def unbind(driver_dir: bytes, busid: bytes, /) -> None:
    """Write the busid to `<driver_dir>/unbind`."""

def rebind(driver_dir: bytes, busid: bytes, /) -> None:
    """Write the busid to usbip-host's `rebind`: the kernel probes the device's own driver."""

def hand_over(device_dir: bytes, sockfd: int, /) -> None:
    """Write the connected socket's number to `usbip_sockfd`. Borrows sockfd."""

def end_session(device_dir: bytes, /) -> None:
    """Write -1 to `usbip_sockfd`."""

def status(device_dir: bytes, /) -> int:
    """`usbip_status`: 1 available, 2 used, 3 error."""
