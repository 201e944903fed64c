# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the status parser against its plain twin (atheris).

Run: `python tests/fuzz/fuzz_status.py -max_total_time=10`. Zero bytes part the controllers.
A difference, or any exception but StatusFormatError, ends the run with the input in a file.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["tests.oracle"]):
    from tests.oracle import status as oracle
from tests.unit._native.texts import SHAPES
from usbdra._native import vhci

MAX_SIZE = 8192
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


def main() -> None:
    """Hand over to libFuzzer; the shapes of real kernels are where it starts from."""
    corpus = Path("build/fuzz/status")
    corpus.mkdir(parents=True, exist_ok=True)
    for name, (text, _) in SHAPES.items():
        (corpus / name).write_bytes(text)
    words = corpus.parent / "status.words"
    words.write_text("".join(f'"{w}"\n' for w in WORDS))
    atheris.Setup(
        [*sys.argv, f"-dict={words}", f"-max_len={MAX_SIZE}", "-timeout=5", str(corpus)], one_input
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
