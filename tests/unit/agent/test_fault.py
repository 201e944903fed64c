# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from usbdra.agent.fault import KILLED, FaultFile
from usbdra.plugin.acts import Step
from usbdra.types import ClaimUid

UID = ClaimUid("uid-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fault"


@pytest.fixture
def ends() -> list[int]:
    return []


def test_without_a_file_every_step_goes_on(path: Path, ends: list[int]) -> None:
    hook = FaultFile(path, ends.append)
    for step in Step:
        hook(step, UID)
    assert ends == []


def test_only_the_named_step_ends_the_process_and_only_once(path: Path, ends: list[int]) -> None:
    hook = FaultFile(path, ends.append)
    path.write_text("prepare.taken\n")
    hook(Step.RECORDED, UID)
    assert ends == []
    hook(Step.TAKEN, UID)
    assert ends == [KILLED]
    assert not path.exists()
    hook(Step.TAKEN, UID)
    assert ends == [KILLED]


def test_the_process_ends_there_as_if_it_was_killed(path: Path) -> None:
    """No `finally`, no atexit; the file is gone, so that the next start goes on."""
    path.write_text("prepare.held")
    code = (
        "import sys; from pathlib import Path\n"
        "from usbdra.agent.fault import FaultFile; from usbdra.plugin.acts import Step\n"
        "try: FaultFile(Path(sys.argv[1]))(Step.HELD, 'uid')\n"
        "finally: print('cleaned up')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (KILLED, "")
    assert not path.exists()
