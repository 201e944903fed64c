# SPDX-License-Identifier: Apache-2.0
"""A disk of node a read and written on node b, past the page cache, over six kinds of link.

The yardstick is our plain link. `stock` is Debian's usbip, which `stunnel` and `wireguard` carry;
`python` is a disk of pure Python (PyPI), to which Debian's usbip attaches; `encrypted` is
our link as it is by default, with the kernel's TLS.
"""

from __future__ import annotations

import pytest

from bench.conftest import Replay
from bench.kernel.copies import BLOCKS, DIRECTIONS, PLAIN, WAYS, Copy, Place, rates


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("to", DIRECTIONS)
@pytest.mark.parametrize("block", BLOCKS)
def test_copy(
    replay: Replay, copied: dict[Place, list[Copy]], block: str, to: str, way: str
) -> None:
    samples = copied[way, to, block]
    role = "yardstick" if way == PLAIN else "ours"
    seconds = [sample.seconds for sample in samples]
    facts = rates(samples, copied[PLAIN, to, block], block)
    replay(f"{to} in blocks of {block}", seconds, role=role, **facts)
