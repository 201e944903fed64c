# SPDX-License-Identifier: Apache-2.0
"""USB/IP links made by hand inside a node: no protocol, no product code, only the kernel's files.

The reference that tests compare with. Runs in the node's control server; standard library only.
"""

import os
import socket
import struct
import threading
import time

VHCI = "/sys/devices/platform/vhci_hcd.0"
DEVICES = "/sys/bus/usb/devices"
TCP_ULP, SOL_TLS, TLS_TX, TLS_RX = 31, 282, 1, 2
TLS13, AES_GCM_128 = 0x0304, 51
_kept = {}  # end of a pair -> socket, for tests that need a peer that says nothing


def _store(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _tune(sock, options):
    """NODELAY, then (level, name, number or text) each."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for level, name, value in options:
        sock.setsockopt(level, name, value.encode() if isinstance(value, str) else value)


def _encrypt(sock, send_key, receive_key):
    """Kernel TLS with keys both ends were given: what a handshake would have agreed on."""
    sock.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
    for way, key in ((TLS_TX, send_key), (TLS_RX, receive_key)):
        raw = bytes.fromhex(key)  # 16 bytes key, 4 salt, 8 iv
        info = struct.pack("=HH", TLS13, AES_GCM_128) + raw[20:28] + raw[:16] + raw[16:20]
        sock.setsockopt(SOL_TLS, way, info + bytes(8))


def export(busid, port=3240, keys=None, v6=False, options=()):
    """Listen, and give the first connection to usbip-host; returns at once."""
    family = socket.AF_INET6 if v6 else socket.AF_INET
    listener = socket.create_server(("", port), family=family)
    threading.Thread(target=_serve, args=(listener, busid, keys, options), daemon=True).start()


def _serve(listener, busid, keys, options):
    with listener:
        sock, _ = listener.accept()
    with sock:  # the kernel keeps its own reference
        _tune(sock, options)
        if keys:
            _encrypt(sock, keys[0], keys[1])
        sock.recv(1)
        _store(f"{DEVICES}/{busid}/usbip_sockfd", str(sock.fileno()))
        sock.send(b"K")


def attach(host, devid, vhci_port, speed, port=3240, keys=None, options=()):
    """Connect and give the connection to vhci; returns seconds {connect, write}."""
    start = time.monotonic()
    with socket.create_connection((host, port), 10) as sock:
        sock.settimeout(None)
        _tune(sock, options)
        if keys:
            _encrypt(sock, keys[1], keys[0])
        sock.send(b"R")
        if sock.recv(1) != b"K":
            raise ConnectionError("the exporter hung up")
        connected = time.monotonic()
        _store(f"{VHCI}/attach", f"{vhci_port} {sock.fileno()} {devid} {speed}")
    return {"connect": connected - start, "write": time.monotonic() - connected}


def attach_silent(vhci_port, speed, devid=0x10002):
    """Attach a peer that never answers; returns errno, 0 for success."""
    ours, theirs = socket.socketpair()
    error = 0
    try:
        _store(f"{VHCI}/attach", f"{vhci_port} {theirs.fileno()} {devid} {speed}")
        _kept[vhci_port, time.monotonic()] = ours
    except OSError as e:
        error = e.errno
        ours.close()
    theirs.close()
    return error


def drop_silent():
    """Close the peers of attach_silent: their ports come free."""
    for sock in _kept.values():
        sock.close()
    _kept.clear()


def read_sha256(disk, size_mib):
    """Checksum of the start of a disk, read past the page cache, and the seconds it took."""
    import hashlib
    import mmap

    start, digest = time.monotonic(), hashlib.sha256()
    fd = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 1 << 17)
        for _ in range(size_mib * 8):
            if os.readv(fd, [buffer]) != len(buffer):
                raise OSError(f"{disk} ends early")
            digest.update(buffer)
    finally:
        os.close(fd)
    return {"sha256": digest.hexdigest(), "seconds": time.monotonic() - start}


def fill(disk, size_mib, marker=""):
    """Write random bytes, or a repeated marker, to the start of a disk; returns the checksum."""
    import hashlib

    digest = hashlib.sha256()
    with open(f"/dev/{disk}", "r+b") as f:
        for _ in range(size_mib):
            data = (marker.encode() * (1 + (1 << 20) // len(marker)))[: 1 << 20] if marker else None
            data = data or os.urandom(1 << 20)
            digest.update(data)
            f.write(data)
        f.flush()
        os.fsync(f.fileno())
    return digest.hexdigest()


def fill_from_seed(disk, size_mib, seed):
    """Write what the host can make too, and looks random: SHAKE-256 of the seed."""
    import hashlib

    with open(f"/dev/{disk}", "r+b") as f:
        f.write(hashlib.shake_256(seed.encode()).digest(size_mib << 20))
        f.flush()
        os.fsync(f.fileno())


def echo(tty, text):
    """Send a text through a serial port and return what comes back."""
    import termios
    import tty as modes

    fd = os.open(f"/dev/{tty}", os.O_RDWR | os.O_NOCTTY)
    try:
        modes.setraw(fd)
        termios.tcflush(fd, termios.TCIOFLUSH)
        os.write(fd, text.encode())
        got = b""
        limit = time.monotonic() + 20
        os.set_blocking(fd, False)
        while len(got) < len(text) and time.monotonic() < limit:
            try:
                got += os.read(fd, 4096)
            except BlockingIOError:
                time.sleep(0.01)
        return got.decode()
    finally:
        os.close(fd)


def keys(event, count, seconds=20, ready=False):
    """The next key presses of an input device, as Linux key codes; prints when it listens."""
    import select

    fd = os.open(f"/dev/input/{event}", os.O_RDONLY)
    if ready:
        print("ready", flush=True)
    pressed, limit = [], time.monotonic() + seconds
    try:
        while len(pressed) < count and time.monotonic() < limit:
            if select.select([fd], [], [], 0.5)[0]:
                _, _, kind, code, value = struct.unpack("llHHi", os.read(fd, 24))
                if (kind, value) == (1, 1):
                    pressed.append(code)
    finally:
        os.close(fd)
    return pressed


def watch_destroyed(port, seconds=30):
    """Local addresses of IPv4 TCP sockets with this port on a side, as sock_diag reports their end.

    Returns at the first one (NETLINK_SOCK_DIAG, group SKNLGRP_INET_TCP_DESTROY = 1).
    """
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    with netlink:
        netlink.bind((0, 1))
        print("ready", flush=True)
        netlink.settimeout(seconds)
        while True:
            data = netlink.recv(65536)
            # nlmsghdr, then inet_diag_msg: 4 bytes, then sport, dport in network order
            sport, dport = struct.unpack_from(">HH", data, 16 + 4)
            if port in (sport, dport):
                return [sport, dport]
