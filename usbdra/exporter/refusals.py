# SPDX-License-Identifier: Apache-2.0
"""What a peer is told when something was refused or went wrong. Pure.

Owns the way from an error to a wire status and a Refusal, and back to an error where another
process of ours decided. Must not log or send.
"""

from __future__ import annotations

from usbdra.errors import DeviceBusy, ExportFailed, NotFound, Refused, UsbdraError
from usbdra.usbip.extension import Refusal
from usbdra.usbip.wire import Status

_STATUSES: tuple[tuple[type[UsbdraError], Status], ...] = (
    (NotFound, Status.NO_DEVICE),
    (DeviceBusy, Status.BUSY),
    (Refused, Status.NOT_AVAILABLE),
    (ExportFailed, Status.DEVICE_ERROR),
)


class RefusedByAgent(Refused):
    """The agent's refusal, as it wants the peer to read it."""

    def __init__(self, status: Status, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.status = status
        self.refusal = refusal


def refusal_of(error: UsbdraError) -> tuple[Status, Refusal]:
    """The wire status that tells a peer most about this error, and the words for it."""
    if isinstance(error, RefusedByAgent):
        return error.status, error.refusal
    holder = error.holder if isinstance(error, DeviceBusy) else ""
    return _status_of(error), Refusal(error.reason, str(error), holder)


def _status_of(error: UsbdraError) -> Status:
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return Status.ERROR
