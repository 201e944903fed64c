# SPDX-License-Identifier: Apache-2.0
"""Runs in a node: reads and writes a disk past the page cache, in blocks of one size.

Called in the node's control server, so that no program's start is in the times. Standard library
only.
"""

import mmap
import os
import time

TICKS = os.sysconf("SC_CLK_TCK")


def copy(disk, way, block, total):
    """Read or write `total` bytes from the disk's start in blocks of `block`; the seconds of it.

    What is written is random. A disk that ends early, or takes less than it was given, is an error.
    """
    flags = os.O_RDONLY if way == "read" else os.O_WRONLY
    fd = os.open(f"/dev/{disk}", flags | os.O_DIRECT)
    try:
        with mmap.mmap(-1, block) as buffer:
            buffer.write(os.urandom(block))
            move = os.preadv if way == "read" else os.pwritev
            started = time.monotonic()
            for offset in range(0, total, block):
                if move(fd, [buffer], offset) != block:
                    raise OSError(f"{disk} ends at {offset}")
            if way == "write":
                os.fsync(fd)
            return time.monotonic() - started
    finally:
        os.close(fd)


def reads(disk):
    """Read commands that the disk has answered since it was there."""
    with open(f"/sys/block/{disk}/stat") as f:
        return int(f.read().split()[0])


def busy():
    """Seconds that the node's processor has worked since its start, for whatever it was."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, *_ = map(int, f.readline().split()[1:])
    return (user + nice + system + irq + softirq) / TICKS
