# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the JSON bodies of our own messages (atheris).

Run: `python tests/fuzz/fuzz_extension.py -max_total_time=10`. The first byte chooses the body.
Anything but a value or a ProtocolError is a finding, and so is a value that does not survive
being packed and parsed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.usbip"]):
    from usbdra.errors import ProtocolError
    from usbdra.types import ClaimUid
    from usbdra.usbip import extension
    from usbdra.usbip.errands import Reset, ResetAnswer
    from usbdra.usbip.extension import (
        ClaimRef,
        GrantReply,
        GrantRequest,
        HeldSession,
        Inventory,
        InventoryRequest,
        Refusal,
    )
from tests.fakes.broker import STICK
from tests.fuzz.harness import fuzz

BODIES: tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
    (extension.parse_grant_request, extension.pack_grant_request),
    (extension.parse_grant_reply, extension.pack_grant_reply),
    (extension.parse_refusal, extension.pack_refusal),
    (extension.parse_inventory, extension.pack_inventory),
    (extension.parse_inventory_request, extension.pack_inventory_request),
    (extension.parse_whole_inventory, lambda found: extension.pack_inventory(found.devices, found)),
)
CLAIM = ClaimRef("lab", "one", ClaimUid("2f1c"))
SEEDS = (
    GrantRequest("usb-stick", CLAIM, "pod lab/one"),
    GrantReply(STICK, (("bind", 0.1),)),
    Refusal("InUse", "held by claim lab/one"),
    [STICK],
    InventoryRequest("CAs", "certificate", ("s1",), "e-1", 60, Reset("stick", "now")),
    Inventory(
        (STICK,),
        "request",
        (HeldSession("s1", "usb-stick", CLAIM, "node-b"),),
        "e-2",
        ResetAnswer("now", "Reset", "done"),
    ),
)


def one_input(data: bytes) -> None:
    """Parse, and round again when it was accepted."""
    if not data:
        return
    parse, pack = BODIES[data[0] % len(BODIES)]
    try:
        value = parse(data[1:])
    except ProtocolError:
        return
    again = parse(pack(value))
    if pack(again) != pack(value):
        raise AssertionError(f"{value} became {again}")


if __name__ == "__main__":
    names = [parse.__name__ for parse, _ in BODIES]
    packed = [bytes([i]) + BODIES[i][1](value) for i, value in enumerate(SEEDS)]
    fuzz(one_input, dict(zip(names, packed, strict=True)), ('"v"', "null", "1e999", "NaN", "\\u"))
