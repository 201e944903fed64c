# SPDX-License-Identifier: Apache-2.0
"""The kill that the cluster bed orders."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from usbdra.errors import ConfigError
from usbdra.plugin.acts import Step
from usbdra.plugin.faults import kill_at
from usbdra.types import ClaimUid

UID = ClaimUid("u")


def test_kills_once_at_the_step_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: kills.append((pid, number)))
    hook = kill_at("prepare.taken", tmp_path / "marker")
    hook(Step.HELD, UID)
    assert kills == []
    hook(Step.TAKEN, UID)
    hook(Step.TAKEN, UID)
    assert kills == [(os.getpid(), signal.SIGKILL)]


def test_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'prepare\.never' is no step; known are prepare\.rec"):
        kill_at("prepare.never", tmp_path)
