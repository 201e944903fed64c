# SPDX-License-Identifier: Apache-2.0
"""The program run in this process: arguments in; exit code, output and messages out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.sysfs import KEYBOARD, STORAGE, SysTree
from usbdra.cli.main import run


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr("usbdra.config.DEFAULT_FILE", Path("/nonexistent"))
    monkeypatch.setenv("USBDRA_NODE", "node-a")

    def call(*arguments: object) -> Result:
        code = run([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def tree(tmp_path: Path) -> SysTree:
    """A stick at 480 Mbit/s, a keyboard at 1.5, and one device imported on port 0 of 8 + 8."""
    tree = SysTree(tmp_path)
    hub = tree.controller().root_hub(bus=1).hub(1)
    stick = hub.plug(
        4, vendor="0781", product="0316", serial=b"4C53", interfaces=(STORAGE,), bcd="0100"
    )
    stick.write("manufacturer", b"SanDisk\n")
    stick.write("product", b"Ultra\x1b[31m\n")
    hub.plug(2, vendor="046d", product="c31c", speed="1.5", interfaces=(KEYBOARD,))
    tree.vhci().plug(port=0, vendor="10c4", product="ea60")
    return tree
