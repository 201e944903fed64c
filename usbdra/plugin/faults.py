# SPDX-License-Identifier: Apache-2.0
"""A kill at a named step, for tests on real nodes.

Owns the hook that the cluster bed asks the agent for; without it nothing here runs. The process
dies as by kill -9: no handler, no clean-up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from usbdra.errors import ConfigError
from usbdra.plugin.acts import Step, StepHook
from usbdra.types import ClaimUid


def kill_at(name: str, marker: Path) -> StepHook:
    """A hook that kills this process the first time it comes to the step of this name.

    marker: a file made before the kill; while it exists there is no other, so that the agent
    that comes next gets through. Raises ConfigError for a name that is no step.
    """
    try:
        wanted = Step(name)
    except ValueError as error:
        known = ", ".join(step.value for step in Step)
        raise ConfigError(f"{name!r} is no step; known are {known}") from error

    def hook(step: Step, uid: ClaimUid) -> None:
        if step is wanted and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return hook
