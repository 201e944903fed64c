# SPDX-License-Identifier: Apache-2.0
"""What `usbdra doctor` looks at: each check reads, none changes anything.

Owns the checks, their texts and remedies (reasons as in R68 of the field reports: missing, not
loaded, forbidden). Kernel facts are read below `root`; the TLS probe and the certificates are of
this machine.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from usbdra import kmod
from usbdra.errors import KernelUnsupported, UsbdraError
from usbdra.types import Hub

if TYPE_CHECKING:
    from usbdra.config import Settings


class Level(Enum):
    """How bad it is: `fail` stops the job that the check names."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: what was looked at, what was seen, and what to do about it."""

    check: str
    level: Level
    seen: str
    remedy: str = ""


MODULES = {
    "usbip_core": "import or export",
    "usbip_host": "export",
    "vhci_hcd": "import",
    "tls": "encrypted links",
}
DIAG_MODULES = ("inet_diag", "tcp_diag")
_PROBE = b"usbdra doctor"
_PROBE_SECONDS = 2.0
# Not "reload the module": usbip-host reads freed memory when it is unloaded with such an entry.
_TABLE_REMEDY = (
    "release devices; the entry of one that was pulled comes free when a device in the same port "
    "is bound and unbound, or at a reboot; never unload usbip-host"
)
_EPOCH_FLOOR = 1_735_689_600  # 2025-01-01: a clock before this project is wrong
_EXPIRY_WARNING_DAYS = 14


def run(settings: Settings, *, rooted: bool) -> Iterator[Finding]:
    """All findings in a fixed order; a check that breaks is a finding, not an end.

    `rooted`: another tree is looked at, so what only this machine can answer is left out.
    """
    root = settings.root
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: modules(root, settings.encryption),
        lambda: diag_modules(root),
        lambda: import_layout(settings),
        lambda: export_table(root),
    ]
    if not rooted:
        checks += [permissions, lambda: kernel_tls(settings.encryption), clock]
        checks.append(lambda: links(settings.port, settings.encryption))
        checks.append(lambda: certificates(settings))
    for check in checks:
        try:
            yield from check()
        except (UsbdraError, OSError) as error:
            yield Finding("doctor", Level.FAIL, str(error))


def modules(root: Path, encryption: str = "Required") -> Iterator[Finding]:
    """Each module: loaded, built in, loadable, forbidden or missing."""
    for name, job in MODULES.items():
        module = kmod.look(root, name)
        check = f"module {name}"
        if module.state.works:
            yield Finding(check, Level.OK, module.state.value)
        else:
            seen = f"{module.state.value}; without it no {job}"
            detail = f" ({module.detail})" if module.detail else ""
            spared = name == "tls" and encryption != "Required"
            level = Level.WARN if spared else Level.FAIL
            yield Finding(check, level, seen + detail, module.remedy)


def diag_modules(root: Path) -> Iterator[Finding]:
    """What link supervision reads sockets through."""
    missing = [m for m in DIAG_MODULES if not kmod.look(root, m).state.works]
    if missing:
        yield Finding(
            "socket diagnosis",
            Level.WARN,
            f"not loaded: {', '.join(missing)}; links are watched less closely",
            f"run: modprobe {' '.join(missing)}",
        )
    else:
        yield Finding("socket diagnosis", Level.OK, "there")


def import_layout(settings: Settings) -> Iterator[Finding]:
    """vhci's ports as the rows tell them."""
    from usbdra.cli import parts

    try:
        table = parts.vhci(settings).table()
    except UsbdraError as error:
        yield Finding("vhci ports", Level.FAIL, str(error), "see module vhci_hcd")
        return
    controllers = len({port.controller for port in table.ports})
    counts = ", ".join(f"{table.hubs[h].total} {h.value}-speed" for h in Hub if h in table.hubs)
    if not table.ports:
        text = "vhci_hcd is loaded and shows no port; its controllers are not ready"
        yield Finding(
            "vhci ports", Level.FAIL, text, "run: modprobe -r vhci_hcd && modprobe vhci_hcd"
        )
        return
    yield Finding("vhci ports", Level.OK, f"{counts} on {controllers} controllers")
    broken = sum(count.broken for count in table.hubs.values())
    if broken:
        yield Finding("vhci ports", Level.WARN, f"{broken} are in error and not used")


def export_table(root: Path) -> Iterator[Finding]:
    """usbip-host's table of bus ids, which has 16 entries."""
    text = kmod.read(root / "sys/bus/usb/drivers/usbip-host/match_busid")
    if not (root / "sys/bus/usb/drivers/usbip-host").is_dir():
        yield Finding("usbip-host", Level.FAIL, "the driver is not there", "see module usbip_host")
        return
    entries = text.split()
    level = Level.OK if len(entries) < 14 else Level.WARN
    remedy = "" if level is Level.OK else _TABLE_REMEDY
    yield Finding("usbip-host", level, f"{len(entries)} of 16 bus ids in its table", remedy)


def permissions() -> Iterator[Finding]:
    """Whether this user may attach and bind."""
    paths = (
        "/sys/devices/platform/vhci_hcd.0/attach",
        "/sys/bus/usb/drivers/usbip-host/match_busid",
    )
    denied = [p for p in paths if os.path.exists(p) and not os.access(p, os.W_OK)]
    if os.geteuid() != 0 or denied:
        text = f"no write access to {denied[0]}" if denied else f"running as uid {os.geteuid()}"
        yield Finding("permissions", Level.FAIL, text, "run as root, in a privileged container")
    else:
        yield Finding("permissions", Level.OK, "root")


def kernel_tls(encryption: str = "Required") -> Iterator[Finding]:
    """Whether links can be encrypted as `encryption` wants it, and what happens if not."""
    if encryption == "Off":
        yield Finding("kernel TLS", Level.WARN, "links are in clear: encryption is Off")
        return
    for found in _tls_over_loopback():
        if found.level is Level.OK:
            yield found
        elif encryption == "Allowed":
            seen = f"{found.seen}; links of this node are in clear (encryption: Allowed)"
            yield Finding(found.check, Level.WARN, seen, found.remedy)
        else:
            seen = f"{found.seen}; no link is made (encryption: Required)"
            yield Finding(found.check, Level.FAIL, seen, found.remedy)


def _tls_over_loopback() -> Iterator[Finding]:
    """Sends a message through the kernel's TLS over loopback: the only answer that counts."""
    from usbdra._native import ktls

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=_PROBE_SECONDS) as sender,
    ):
        receiver, _ = server.accept()
        with receiver:
            receiver.settimeout(_PROBE_SECONDS)
            try:
                for sock, direction in ((sender, ktls.TX), (receiver, ktls.RX)):
                    ktls.attach_ulp(sock.fileno())
                    key, iv = bytes(range(16)), bytes(range(12))
                    ktls.set_keys(sock.fileno(), direction, ktls.AES_128_GCM, key, iv)
                sender.sendall(_PROBE)
                came = receiver.recv(len(_PROBE), socket.MSG_WAITALL)
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                text = f"the kernel refuses TLS on a connection: {why}"
                yield Finding("kernel TLS", Level.FAIL, text, "run: modprobe tls")
                return
    if came == _PROBE:
        yield Finding("kernel TLS", Level.OK, "a message went through it over loopback")
    else:
        yield Finding("kernel TLS", Level.FAIL, "a message was changed on its way", "report this")


def links(port: int, encryption: str = "Required") -> Iterator[Finding]:
    """Whether the kernel encrypts the links that run now, to other nodes and from them."""
    from usbdra.transport.measure import links_to

    try:
        found = links_to(port) | links_to(port, served=True)
    except KernelUnsupported as error:
        yield Finding("links", Level.WARN, str(error), "run: modprobe -a inet_diag tcp_diag")
        return
    clear = sorted({ends.peer for ends, told in found.items() if not told.encrypted})
    count = f"{len(found)} link{'' if len(found) == 1 else 's'} on port {port}"
    if not clear:
        yield Finding("links", Level.OK, f"{count}, all encrypted" if found else f"no {count[2:]}")
        return
    level = Level.FAIL if encryption == "Required" else Level.WARN
    seen = f"{count}, in clear with {', '.join(clear[:8])}{' and others' if clear[8:] else ''}"
    yield Finding("links", level, seen, "end them; one that is just being made is in clear so far")


def clock(now: float | None = None) -> Iterator[Finding]:
    """Certificates are checked against this clock."""
    now = time.time() if now is None else now
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _EPOCH_FLOOR:
        remedy = "set the clock; certificates are not valid yet by it"
        yield Finding("clock", Level.FAIL, text, remedy)
    else:
        yield Finding("clock", Level.OK, text)


def certificates(settings: Settings, now: float | None = None) -> Iterator[Finding]:
    """This node's certificate: there, valid now, and for how long."""
    from datetime import UTC, datetime

    from usbdra.pki import commands, sets
    from usbdra.transport.tls import TlsFiles

    files = TlsFiles.in_directory(settings.pki_dir)
    of_cluster = TlsFiles.in_directory(settings.run_dir / "pki" / sets.CURRENT)
    if not files.cert.exists() and of_cluster.cert.exists():
        yield _of_cluster(of_cluster.cert, now)
        return
    if not files.cert.exists():
        yield Finding(
            "certificate",
            Level.WARN,
            f"no {files.cert}; only --plain works",
            "run `usbdra pki issue NODE` on the machine with the CA and copy its files here",
        )
        return
    moment = datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
    (found,) = commands.show(files.cert)
    days = found.days_left(moment)
    text = f"for node {found.node}, {days} days left"
    if moment < found.not_before:
        text = f"not valid before {found.not_before:%Y-%m-%d %H:%M} UTC"
        yield Finding("certificate", Level.FAIL, text, "check the clock of both machines")
    elif days < 0:
        remedy = f"issue a new one: usbdra pki issue {found.node} --force"
        yield Finding("certificate", Level.FAIL, f"expired {-days} days ago", remedy)
    else:
        level = Level.OK if days >= _EXPIRY_WARNING_DAYS else Level.WARN
        yield Finding("certificate", level, text, "" if level is Level.OK else "issue a new one")


def _of_cluster(cert: Path, now: float | None) -> Finding:
    """The certificate that the agent has from the cluster, and renews long before its end."""
    from datetime import UTC, datetime

    from usbdra.pki import commands

    moment = datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
    (found,) = commands.show(cert)
    hours = (found.not_after - moment).total_seconds() / 3600
    if hours > 0:
        text = f"of the cluster, for node {found.node}, {hours:.0f} hours left"
        return Finding("certificate", Level.OK, text, "")
    remedy = "see the agent's log, and whether usbdra controller runs (kubectl get csr)"
    return Finding(
        "certificate", Level.FAIL, f"of the cluster, expired {-hours:.0f} hours ago", remedy
    )
