# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of checkpoint records (atheris).

Run: `python tests/fuzz/fuzz_records.py -max_total_time=10`. The first byte chooses the kind and
whether the rest is a whole file or the data below a right checksum. Anything but a record or a
ValueError (the file is set aside) is a finding, and so is a record that does not survive being
saved and read again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.state"]):
    from usbdra.state.claims import ClaimSchema
    from usbdra.state.exports import ExportSchema
    from usbdra.state.schema import Schema
    from usbdra.state.store import RecordStore
from tests.fuzz.harness import fuzz
from tests.unit.plugin.records import record

SCHEMAS: tuple[Schema[Any], ...] = (ClaimSchema(), ExportSchema())
STORES = tuple(RecordStore(Path("/nonexistent"), schema) for schema in SCHEMAS)
WHOLE_FILE = 128


def one_input(data: bytes) -> None:
    """Decode as the store does when a process starts."""
    if not data:
        return
    number, body = data[0] % len(SCHEMAS), data[1:]
    schema, store = SCHEMAS[number], STORES[number]
    try:
        if data[0] & WHOLE_FILE:
            found = store._decode(body)
        else:
            fields = json.loads(body)
            if not isinstance(fields, dict):
                return
            found = schema.decode(schema.version, fields)
    except (ValueError, RecursionError):
        return
    again = store._decode(store._text(found))
    if store._text(again) != store._text(found):
        raise AssertionError(f"{found} became {again}")


if __name__ == "__main__":
    claim = STORES[0]._text(record())
    data = json.dumps(dict(SCHEMAS[0].encode(record()))).encode()
    seeds = {"claim": bytes([WHOLE_FILE]) + claim, "claim-data": b"\0" + data}
    fuzz(one_input, seeds, [f'"{name}"' for name in json.loads(data)])
