#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate usbdra/_pb from protos/*.proto; with --check say what is not up to date.

The kubelet calls each of its files `api.proto`, and protobuf's pool is keyed by file name, so
the vendored copies have names of their own; packages and services keep theirs. Only messages
are generated: usbdra/plugin/rpc.py builds the gRPC handlers from the service descriptors, which
spares a second set of generated files and their check of the installed grpcio version.
"""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "usbdra" / "_pb"
PACKAGE_PATH = "usbdra/_pb"


def generate(out: Path) -> list[Path]:
    """Run protoc into `out` (the root that holds usbdra/_pb) and return the files it made."""
    from grpc_tools import protoc

    names = sorted(p.name for p in HERE.glob("*.proto"))
    code = protoc.main(
        [
            "protoc",
            f"-I{PACKAGE_PATH}={HERE}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            *(f"{PACKAGE_PATH}/{name}" for name in names),
        ]
    )
    if code:
        raise SystemExit(f"protoc ended with {code}")
    made = sorted((out / PACKAGE_PATH).glob("*_pb2.py*"))
    for path in made:
        path.write_text(f"# SPDX-License-Identifier: Apache-2.0\n{strict(path.read_text())}")
    return made


def strict(text: str) -> str:
    """Stub text with the type arguments that protoc leaves out and mypy --strict asks for."""
    filled = text.replace("_Mapping]", "_Mapping[str, _Any]]")
    if filled == text:
        return text
    return filled.replace("from typing import ", "from typing import Any as _Any, ", 1)


def stale(made: list[Path]) -> list[str]:
    """Names of committed files that differ from the generated ones, are missing or are extra."""
    names = {p.name for p in made}
    differing = [
        p.name
        for p in made
        if not (TARGET / p.name).is_file() or not filecmp.cmp(p, TARGET / p.name, shallow=False)
    ]
    extra = [p.name for p in TARGET.glob("*_pb2*") if p.name not in names]
    return sorted(differing + extra)


def main(argv: list[str] | None = None) -> int:
    """Write the generated code, or with --check return 1 when the committed code differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, report differences")
    check = parser.parse_args(argv).check
    with tempfile.TemporaryDirectory() as scratch:
        made = generate(Path(scratch))
        if check:
            names = stale(made)
            for name in names:
                print(f"usbdra/_pb/{name} is not what protos/gen.py makes", file=sys.stderr)
            return 1 if names else 0
        TARGET.mkdir(exist_ok=True)
        for old in TARGET.glob("*_pb2*"):
            old.unlink()
        for path in made:
            (TARGET / path.name).write_bytes(path.read_bytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
