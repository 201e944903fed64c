# SPDX-License-Identifier: Apache-2.0
"""Runs in both nodes: how long a key takes from the keyboard to the node that uses it.

Two machines have two clocks, so one tells both times: the keyboard's node. It writes a report, the
other node's program reads the key from the input device and answers with a datagram. What a
datagram takes there and back by itself is taken the same way, and half of it is the answer's part.
Called in the nodes' control servers. Standard library only.
"""

import os
import socket
import struct
import threading
import time

import gadget

PORT = 4077
EVENT = struct.Struct("llHHi")  # struct input_event
EV_KEY = 1
KEY = 4  # the letter a, HID usage tables 10
LIMIT_S = 10.0


def answer(event):
    """Answer each datagram, and each change of a key to whoever sent the last datagram, until the
    input device goes. Returns at once."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("", PORT))
    fd = os.open(f"/dev/input/{event}", os.O_RDONLY)
    peers = []
    threading.Thread(target=_bounce, args=(sock, peers), daemon=True).start()
    threading.Thread(target=_tell, args=(sock, peers, fd), daemon=True).start()


def _bounce(sock, peers):
    while True:
        data, peer = sock.recvfrom(64)
        peers[:] = [peer]
        if data == b"end":
            sock.close()
            return
        sock.sendto(data, peer)


def _tell(sock, peers, fd):
    try:
        while data := os.read(fd, EVENT.size):
            _, _, kind, _, value = EVENT.unpack(data)
            if kind == EV_KEY:
                sock.sendto(b"%d" % value, peers[0])
    except OSError:  # ENODEV: it was pulled; EBADF: nobody wants to know any more
        os.close(fd)


def echoes(address, count, pause):
    """Seconds that so many datagrams took, there and back, with seconds between them."""
    with _to(address) as sock:
        return [_timed(sock, lambda: sock.send(b"echo"), pause) for _ in range(count)]


def presses(name, address, count, pause):
    """Seconds from each report to the answer, the key pressed and let go in turn."""
    fd = gadget.reports(name)
    try:
        with _to(address) as sock:
            _timed(sock, lambda: sock.send(b"echo"), 0)
            return [
                _timed(sock, lambda r=report: os.write(fd, r), pause) for report in _reports(count)
            ]
    finally:
        os.close(fd)


def burst(name, address, count):
    """Seconds for so many reports, written as fast as they are taken, to be answered."""
    fd = gadget.reports(name)
    try:
        with _to(address) as sock:
            _timed(sock, lambda: sock.send(b"echo"), 0)
            started = time.monotonic()
            for report in _reports(count):
                os.write(fd, report)
            for _ in range(count):
                sock.recv(64)
            return time.monotonic() - started
    finally:
        os.close(fd)


def end(address):
    """No more answers."""
    with _to(address) as sock:
        sock.send(b"end")


def _reports(count):
    return [bytes((0, 0, KEY * ((number + 1) % 2), 0, 0, 0, 0, 0)) for number in range(count)]


def _to(address):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(LIMIT_S)
    sock.connect((address, PORT))
    return sock


def _timed(sock, act, pause):
    started = time.monotonic()
    act()
    sock.recv(64)
    took = time.monotonic() - started
    time.sleep(pause)
    return took
