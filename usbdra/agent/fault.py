# SPDX-License-Identifier: Apache-2.0
"""Ends this agent between two steps of a claim: the cluster bed proves that nothing is lost then.

Owns the switch and its two locks: the agent must be told of a file by its environment, which
nothing in the chart can do, and the file must name the step. A file is good for one end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from usbdra.plugin.acts import Step, StepHook
from usbdra.types import ClaimUid

log = logging.getLogger(__name__)

KILLED = 137
"""Exit status of a process that SIGKILL ended, as shells and container runtimes tell it."""


class FaultFile:
    """A step hook: at the step that `path` names the file is removed and the process ends.

    Ending is `os._exit`, which runs no more code of ours, as with SIGKILL; that signal itself
    does nothing when the first process of a container sends it to itself (pid_namespaces(7)).
    """

    def __init__(self, path: Path, end: Callable[[int], object] = os._exit) -> None:
        self._path = path
        self._end = end
        log.warning("a fault can be ordered: whoever writes %s ends this agent", path)

    def __call__(self, step: Step, uid: ClaimUid) -> None:
        """Go on, or end here."""
        try:
            ordered = self._path.read_text().strip()
        except FileNotFoundError:
            return
        if ordered != step.value:
            return
        self._path.unlink()
        log.warning("ending at %s, as ordered", step.value, extra={"claim": uid})
        self._end(KILLED)


def hook(path: Path | None) -> StepHook:
    """What is called at each step: nothing happens, but in the beds."""
    return FaultFile(path) if path is not None else _go_on


def _go_on(step: Step, uid: ClaimUid) -> None:
    """Every step but in the beds."""
