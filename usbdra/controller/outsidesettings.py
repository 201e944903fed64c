# SPDX-License-Identifier: Apache-2.0
"""What the controller is told of hosts outside the cluster. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from usbdra.transport.ktls import Encryption


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSettings:
    """How hosts outside are reached: on the port of the nodes' exporters, as those are."""

    port: int = 3241
    encryption: Encryption = Encryption.REQUIRED
    assignment: str = "Off"
    """Off, Optional or Required, as agents are told it."""
    look_seconds: float = 10.0
    """Between two looks at a host that does not tell of news by itself."""
    silent_seconds: float = 10.0
    """Between two looks at one that does not answer."""
