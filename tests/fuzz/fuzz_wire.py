# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of everything a peer can send before the hand-over (atheris).

Run: `python tests/fuzz/fuzz_wire.py -max_total_time=10`. The first byte chooses who reads, the
second how many bytes come at a time. Anything but a message or a ProtocolError is a finding.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.usbip"]):
    from usbdra.errors import ProtocolError
    from usbdra.usbip import session
    from usbdra.usbip.extension import GrantRequest
from tests.fuzz.harness import fuzz

CAPTURES = Path(__file__).resolve().parents[1] / "data/wire"
SERVER, PLAIN_SERVER, DEVLIST, IMPORT = 0, 1, 2, 4


def target(choice: int) -> Any:
    """A fresh reader: one of the two servers, or one of the four replies."""
    makers: tuple[Any, ...] = (
        lambda: session.ServerSession(extensions=True),
        lambda: session.ServerSession(extensions=False),
        lambda: session.request_devlist()[1],
        lambda: session.request_inventory()[1],
        lambda: session.request_import("1-1")[1],
        lambda: session.request_grant(GrantRequest("1-1"))[1],
    )
    return makers[choice % len(makers)]()


def one_input(data: bytes) -> None:
    """Feed until the reader is satisfied or offended."""
    if len(data) < 2:
        return
    reader, step, rest = target(data[0]), data[1] + 1, data[2:]
    try:
        while reader.bytes_needed and rest:
            size = min(step, reader.bytes_needed)
            reader.feed(rest[:size])
            rest = rest[size:]
    except ProtocolError:
        return


def capture(name: str) -> bytes:
    """The bytes of a captured message; a # starts a remark."""
    lines = (CAPTURES / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def seeds() -> dict[str, bytes]:
    """What stock peers and our own client send."""
    grant, _ = session.request_grant(GrantRequest("1-1"))
    inventory, _ = session.request_inventory()
    return {
        "import_request": bytes([PLAIN_SERVER, 255]) + capture("import_request"),
        "devlist_reply": bytes([DEVLIST, 255]) + capture("devlist_reply"),
        "import_reply": bytes([IMPORT, 255]) + capture("import_reply"),
        "grant": bytes([SERVER, 255]) + grant,
        "inventory": bytes([SERVER, 0]) + inventory,
    }


if __name__ == "__main__":
    fuzz(one_input, seeds())
