# SPDX-License-Identifier: Apache-2.0
"""The exception tree. Classes carry fields for machines; texts name the thing and the remedy.

`reason` is the one stable CamelCase word used in conditions, events, metrics and JSON alike.
`exit_code` is what the command line ends with (documented in docs/cli.md).
Must not do I/O and must not import anything of ours but types.
"""

from __future__ import annotations

import reprlib
from typing import ClassVar

_TEXTS = reprlib.Repr()
_TEXTS.maxlevel = 2
_TEXTS.maxstring = _TEXTS.maxother = 60


def shown(value: object) -> str:
    """A foreign value as an error's text quotes it, cut.

    Never walks the whole of it: a few nested YAML aliases stand for more than memory holds.
    """
    return _TEXTS.repr(value)


class UsbdraError(Exception):
    """Base of every error we raise on purpose."""

    reason: ClassVar[str] = "Failed"
    exit_code: ClassVar[int] = 1


class ConfigError(UsbdraError):
    """A setting, file or argument that cannot be used; the text names it."""

    reason = "BadConfig"
    exit_code = 2


class NotFound(UsbdraError):
    """No such device, port or host entry."""

    reason = "NotFound"
    exit_code = 3


class Refused(UsbdraError):
    """The request is understood and not allowed; the text says why."""

    reason = "Refused"
    exit_code = 4


class HostInUse(Refused):
    """The host itself uses the device (mounted disk, default route, console keyboard)."""

    reason = "InUse"

    def __init__(self, busid: str, holder: str) -> None:
        super().__init__(f"device {busid} is in use by this host: {holder}")
        self.busid = busid
        self.holder = holder


class DeviceBusy(Refused):
    """Another session holds the device. `holder` names its claim or peer."""

    reason = "Busy"

    def __init__(self, device: str, holder: str) -> None:
        super().__init__(f"device {device} is in use by {holder}")
        self.device = device
        self.holder = holder


class IdentityChanged(Refused):
    """What answered is not the device that was asked for."""

    reason = "IdentityChanged"


class NoFreePort(UsbdraError):
    """Every port of the hub that this speed needs is taken."""

    reason = "NoFreeUSBIPPort"
    exit_code = 5

    def __init__(self, hub: str, used: int, capacity: int, node: str = "this node") -> None:
        super().__init__(
            f"no {hub}-speed port free on {node}: {used} of {capacity} in use; "
            "detach a device or raise the limit"
        )
        self.hub = hub
        self.used = used
        self.capacity = capacity


class KernelUnsupported(UsbdraError):
    """A module, file or feature of the kernel is missing; the text says which and the remedy."""

    reason = "KernelUnsupported"
    exit_code = 6


class UnknownStatusLayout(KernelUnsupported):
    """The vhci status header is of no known shape; nothing is attached on such a kernel."""

    reason = "UnknownStatusLayout"

    def __init__(self, header: str) -> None:
        super().__init__(f"vhci status has an unknown header: {header!r}; import is off")
        self.header = header


class LinkError(UsbdraError):
    """The connection to a peer could not be made or broke."""

    reason = "LinkLost"
    exit_code = 7


class Unreachable(LinkError):
    """No connection to the peer within the time allowed."""

    reason = "Unreachable"


class PeerTimeout(LinkError):
    """The peer accepted and then said nothing in time."""

    reason = "PeerTimeout"


class PeerClosed(LinkError):
    """The peer ended the connection where a message was due; `received` of `wanted` bytes came."""

    reason = "PeerClosed"

    def __init__(self, message: str, received: int, wanted: int) -> None:
        super().__init__(message)
        self.received = received
        self.wanted = wanted


class ProtocolError(LinkError):
    """The peer sent something that is not USB/IP 1.1.1; the text names the field and value."""

    reason = "ProtocolError"


class NotAuthenticated(LinkError):
    """The peer's certificate, or ours, was not accepted."""

    reason = "NotAuthenticated"
    exit_code = 4


class EncryptionUnavailable(LinkError):
    """Encryption is required and the kernel or the peer cannot do it."""

    reason = "EncryptionUnavailable"
    exit_code = 6


class PeerRefused(Refused):
    """The exporter answered with a refusal. `status` is the wire status, `peer_reason` its word."""

    reason = "PeerRefused"

    def __init__(self, message: str, status: int, peer_reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.peer_reason = peer_reason or type(self).reason


class AttachFailed(UsbdraError):
    """The kernel took the socket and the device did not become usable in time."""

    reason = "AttachFailed"
    exit_code = 8


class DetachStuck(UsbdraError):
    """The detach write went through and the port did not come back to free in time."""

    reason = "DetachStuck"
    exit_code = 8


class PlugFailed(UsbdraError):
    """A virtual machine did not take the device, or did not give it back; the text says why."""

    reason = "PlugFailed"
    exit_code = 8


class ExportFailed(UsbdraError):
    """Binding to usbip-host or handing over the socket failed; the device is back with its host."""

    reason = "ExportFailed"
    exit_code = 8


class ResetFailed(UsbdraError):
    """The device did not come back from a reset that was asked for."""

    reason = "ResetFailed"
    exit_code = 8


class DriverNotRestored(UsbdraError):
    """The device was released and its host driver did not come back."""

    reason = "DriverNotRestored"
    exit_code = 8


class StateError(UsbdraError):
    """A record on disk is unreadable or cannot be written; the text names the file."""

    reason = "StateError"
    exit_code = 9


class Ambiguous(ConfigError):
    """One word, several devices; the text lists them with names that tell them apart."""

    reason = "Ambiguous"

    def __init__(self, key: str, candidates: tuple[str, ...]) -> None:
        super().__init__(f"{key!r} means several devices, name one of: {', '.join(candidates)}")
        self.key = key
        self.candidates = candidates


class ClaimBusy(UsbdraError):
    """Another prepare or unprepare of the same claim is still at work; try again."""

    reason = "ClaimBusy"


class OutOfTime(UsbdraError):
    """A claim was not ready in the time the kubelet gives; the text says what it waited for."""

    reason = "Timeout"


class NotPermitted(UsbdraError):
    """The system does not let this user do it; the text names the file and the remedy."""

    reason = "NotPermitted"
    exit_code = 11
