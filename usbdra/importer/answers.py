# SPDX-License-Identifier: Apache-2.0
"""What an exporter's refusal means, one clear error for each status. Pure."""

from __future__ import annotations

from usbdra.errors import DeviceBusy, NotFound, PeerRefused, UsbdraError
from usbdra.usbip.extension import Refusal
from usbdra.usbip.wire import Status

# What each status means and what to do, from the stock server's use of it (usbipd.c,
# libsrc/usbip_host_common.c usbip_export_device).
_MEANINGS: dict[int, str] = {
    Status.NOT_AVAILABLE: "does not offer {device}: bind it there first",
    Status.DEVICE_ERROR: "has {device} in an error state: rebind it there, then try again",
    Status.ERROR: "failed to serve {device}: see its log",
}


def error_of(status: int, refusal: Refusal | None, host: str, device: str) -> UsbdraError:
    """The error for a reply whose status is not 0; `device` is empty for lists.

    DeviceBusy may be tried again later. NotFound asks for a fresh inventory. PeerRefused keeps
    the status (1 not available or not allowed, 3 device in error, 5 unexpected) and the reason.
    """
    wanted = f"device {device}" if device else "its devices"
    if status == Status.BUSY and device:
        holder = refusal.holder if refusal else ""
        return DeviceBusy(device, holder or f"another session at {host}")
    if refusal is not None:
        text = f"{host} refused: {refusal.message}"
        return NotFound(text) if status == Status.NO_DEVICE else _refused(text, status, refusal)
    if status == Status.NO_DEVICE:
        return NotFound(f"{host} has no {wanted}; see what it offers with `usbdra remote {host}`")
    meaning = _MEANINGS.get(status, "answered {device} with unknown status {status}")
    text = f"{host} {meaning.format(device=wanted, status=status)}"
    return _refused(text, status, None)


def _refused(text: str, status: int, refusal: Refusal | None) -> PeerRefused:
    return PeerRefused(text, status, refusal.reason if refusal else "")
