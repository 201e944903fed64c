# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of everything a peer can send before the hand-over (atheris).

    python -m tests.fuzz.fuzz_wire -max_total_time=60

The first byte chooses who reads, the second how many bytes come at a time. Anything but a
message or a ProtocolError is a finding.
"""

from __future__ import annotations

import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["usbdra.usbip"]):
    from usbdra.errors import ProtocolError
    from usbdra.usbip import session
    from usbdra.usbip.extension import GrantRequest


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


def main() -> None:
    """Run until libFuzzer's own limits."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
