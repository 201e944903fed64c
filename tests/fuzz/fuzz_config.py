# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the configuration file and the device policy in it (atheris).

Run: `python tests/fuzz/fuzz_config.py -max_total_time=10`. Anything but settings or a ConfigError
is a finding, and so is an error text that no terminal would hold.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.config", "usbdra.discovery.policy"]):
    from usbdra import config
    from usbdra.errors import ConfigError
from tests.fuzz.harness import MAX_SIZE, fuzz
from usbdra.cli import parts

MAX_ERROR = 1000 + 2 * MAX_SIZE  # a key may be as long as the file, escapes and all
POLICY = b"""\
forwardLowSpeed: true
allowedCIDRs: [10.0.0.0/8, "fd00::/8"]
policy:
  default: deny
  rules:
  - {action: allow, device: "0951:1666", serial: "A*"}
  - {action: deny, class: "08", reason: no disks}
"""
BOMB = b"policy:\n  rules: &a [x, x]\n  a: &b [*a, *a]\n  default: *b\nmaxPorts: *b\n"
FILE = Path(tempfile.mkstemp(prefix="usbdra-fuzz-", suffix=".yaml", dir="/dev/shm")[1])


def one_input(data: bytes) -> None:
    """The bytes as a configuration file."""
    FILE.write_bytes(data)
    try:
        parts.policy(config.load(file=FILE))
    except ConfigError as error:
        if len(str(error)) > MAX_ERROR:
            raise AssertionError(f"an error of {len(str(error))} letters") from error


if __name__ == "__main__":
    seeds = {"policy": POLICY, "bomb": BOMB, "empty": b""}
    fuzz(
        one_input, seeds, [*config.settings_keys(), "&a", "*a", "\\U0010ffff", "!!", "<<", "rules"]
    )
