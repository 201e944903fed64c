# SPDX-License-Identifier: Apache-2.0
"""Generated code is what the vendored .proto files give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_protobuf_messages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "protos" / "gen.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
