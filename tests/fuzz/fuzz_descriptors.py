# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the walk over a device's descriptors (atheris).

Run: `python tests/fuzz/fuzz_descriptors.py -max_total_time=10`. Any exception is a finding: a
device with nonsense in it is still a device.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.discovery.descriptors"]):
    from usbdra.discovery.descriptors import parse
from tests.fakes.descriptors import (
    ISOCHRONOUS,
    KEYBOARD,
    STORAGE,
    Endpoint,
    Interface,
    configuration,
    device_descriptor,
)
from tests.fuzz.harness import MAX_SIZE, fuzz

SMALLEST_INTERFACE = 9
SPEAKER = Interface(1, 2, number=1, alternate=1, endpoints=(Endpoint(0x01, ISOCHRONOUS, 192),))


def one_input(data: bytes) -> None:
    """The summary stays within what the bytes can hold."""
    summary = parse(data)
    if len(summary.interfaces) > len(data) // SMALLEST_INTERFACE:
        raise AssertionError(f"{len(summary.interfaces)} interfaces in {len(data)} bytes")
    if not all(0 <= code <= 255 for row in summary.interfaces for code in row):
        raise AssertionError(f"no byte: {summary.interfaces}")


if __name__ == "__main__":
    head = device_descriptor(0x0781, 0x5581)
    found = {"storage": (STORAGE,), "keyboard": (KEYBOARD,), "speaker": (SPEAKER,)}
    fuzz(one_input, {k: head + configuration(v) for k, v in found.items()}, max_size=MAX_SIZE)
