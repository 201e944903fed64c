# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of what exporter and agent say to each other (atheris).

Run: `python tests/fuzz/fuzz_messages.py -max_total_time=10`. The first byte chooses a parser; the
rest is a frame's header for the first of them, a body for the others. Anything but a value or a
ProtocolError is a finding, and so is a value that does not survive being said again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.exporter", "usbdra.transport", "usbdra.usbip"]):
    from usbdra.errors import ProtocolError
    from usbdra.exporter import messages
    from usbdra.exporter.broker import ClaimRef, Granted, GrantRequest, Peer
    from usbdra.exporter.messages import Pems
    from usbdra.transport import packets
    from usbdra.types import ClaimUid, NodeName
    from usbdra.usbip.extension import Refusal
    from usbdra.usbip.wire import Status
from tests.fakes.broker import STICK
from tests.fuzz.harness import fuzz

LIMIT = messages.MAX_REQUEST


def _header(data: bytes) -> tuple[int, int]:
    if len(data) < packets.HEADER.size:
        raise ProtocolError("short")
    return packets.parse_header(data[: packets.HEADER.size], LIMIT)


TARGETS: tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
    (_header, lambda value: packets.pack_header(*value)),
    (messages.parse_peer, messages.pack_inventory),
    (messages.parse_acquire, lambda value: messages.pack_acquire(*value)),
    (messages.parse_granted, messages.pack_granted),
    (messages.parse_session, messages.pack_session),
    (messages.parse_refused, lambda value: messages.pack_refused(*value)),
    (messages.parse_devices, messages.pack_devices),
    (messages.parse_have, messages.pack_have),
    (messages.parse_pems, messages.pack_pems),
    (messages.parse_hand_over, lambda value: messages.pack_session(*value)),
)
PEER = Peer("10.0.0.2", 4242, NodeName("b"), True)
SEEDS: tuple[Any, ...] = (
    (2, 100),
    PEER,
    (GrantRequest("usb-stick", ClaimRef("lab", "one", ClaimUid("2f1c")), "pod lab/one"), PEER),
    Granted("5f3a", STICK, (("bind", 0.1),)),
    "5f3a",
    (Status.BUSY, Refusal("Busy", "held by claim lab/one", "claim lab/one")),
    (STICK,),
    "stamp",
    Pems("stamp", "CERT", "KEY", "CA"),
    ("5f3a", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
)


def one_input(data: bytes) -> None:
    """Parse, and round again when it was accepted."""
    if not data:
        return
    parse, pack = TARGETS[data[0] % len(TARGETS)]
    try:
        value = parse(data[1:])
    except ProtocolError:
        return
    said = pack(value)
    if pack(parse(said)) != said:
        raise AssertionError(f"{value} became {parse(said)}")


if __name__ == "__main__":
    seeds = {
        f"{index}": bytes((index,)) + pack(seed)
        for index, ((_, pack), seed) in enumerate(zip(TARGETS, SEEDS, strict=True))
    }
    fuzz(one_input, seeds, ('"v"', '"peer"', '"session"', '"status"', "null", "UD\\x01"))
