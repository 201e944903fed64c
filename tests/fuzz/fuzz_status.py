# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the status parser against its plain twin (atheris).

Run: `python tests/fuzz/fuzz_status.py -max_total_time=10`. Zero bytes part the controllers.
A difference, or any exception but StatusFormatError, is a finding.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["tests.oracle"]):
    from tests.oracle import status as oracle
from tests.fuzz.harness import MAX_SIZE, fuzz
from tests.unit._native.texts import SHAPES
from usbdra._native import vhci

WORDS = ("hub", "port", "prt", "sta", "bus", "dev", "sockfd", "socket", "0-0", "(null)")


def one_input(data: bytes) -> None:
    """Both parsers on one input."""
    texts = data[:MAX_SIZE].split(b"\0")
    try:
        expected = oracle.parse(texts)
    except oracle.Malformed:
        expected = None
    try:
        found = [tuple(row) for row in vhci.parse(texts)]
    except vhci.StatusFormatError as error:
        if expected is not None:
            raise AssertionError("only the extension refuses this") from error
        return
    if found != expected:
        raise AssertionError(f"{found} is not {expected}")


if __name__ == "__main__":
    fuzz(one_input, {name: text for name, (text, _) in SHAPES.items()}, WORDS)
