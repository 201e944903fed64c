# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel module is there, could be, or is kept out, and by what (field report R68).

Owns reading: /sys/module, the module index of the running kernel, modprobe's configuration, and
the kernel's own bans. Below a root, without a process and without loading anything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_CONF_DIRS = ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
_SIGNED_ONLY = "only signed modules load, so the distribution's own kernel package is needed"


class ModuleState(Enum):
    """What is known of a module."""

    LOADED = "loaded"
    BUILT_IN = "built in"
    LOADABLE = "not loaded"
    FORBIDDEN = "not loaded and forbidden"
    MISSING = "missing"
    UNKNOWN = "not loaded, perhaps loadable"

    @property
    def works(self) -> bool:
        """Whether the kernel has it now."""
        return self in (ModuleState.LOADED, ModuleState.BUILT_IN)


@dataclass(frozen=True, slots=True)
class Module:
    """One module: its state, and why it is so or what to do, empty when it works."""

    name: str
    state: ModuleState
    detail: str = ""
    remedy: str = ""


# Where a driver shows itself even when it is built in and has no parameters, so that it is
# neither in /sys/module nor, on a hand-made kernel, in modules.builtin.
_EVIDENCE = {
    "vhci_hcd": "sys/bus/platform/drivers/vhci_hcd",
    "usbip_host": "sys/bus/usb/drivers/usbip-host",
}


def look(root: Path, name: str) -> Module:
    """The state of one module, named as in /sys/module (`usbip_host`). Raises nothing."""
    if (root / "sys/module" / name).is_dir():
        return Module(name, ModuleState.LOADED)
    release = kernel_release(root)
    index = root / "lib/modules" / release
    if _shows_itself(root, name) or name in _names(index / "modules.builtin"):
        return Module(name, ModuleState.BUILT_IN)
    ban = forbidden(root, name)
    if ban:
        return Module(name, ModuleState.FORBIDDEN, ban, "lift the ban, or use another node")
    if not index.is_dir():
        detail = f"/lib/modules/{release} is not here to tell whether it could be"
        return Module(name, ModuleState.UNKNOWN, detail, f"run on the host: modprobe {name}")
    if name in _names(index / "modules.dep"):
        remedy = f"run: modprobe {name}"
        caveat = signing(root)
        return Module(name, ModuleState.LOADABLE, caveat, remedy)
    return Module(
        name,
        ModuleState.MISSING,
        f"kernel {release} has no such module",
        f"install the kernel's extra modules (Ubuntu: linux-modules-extra-{release}), or a "
        "kernel built with it",
    )


def settled(root: Path, name: str) -> bool:
    """Whether nobody loads or unloads it at this moment, in which not all it shows is there to be
    read (Documentation/ABI/testing/sysfs-module `initstate`; what is built in has none)."""
    return read(root / "sys/module" / name / "initstate") in ("", "live")


def forbidden(root: Path, name: str) -> str:
    """Why loading would be refused; empty when nothing is known that would."""
    if read(root / "proc/sys/kernel/modules_disabled") == "1":
        return "module loading is switched off until the next boot (kernel.modules_disabled=1)"
    return _modprobe_ban(root, name)


def signing(root: Path) -> str:
    """That the kernel takes signed modules only, and by which rule; empty when it takes any.

    An unsigned module then fails with "Key was rejected by service" (kernel/module/signing.c).
    """
    lockdown = read(root / "sys/kernel/security/lockdown")
    if "[integrity]" in lockdown or "[confidentiality]" in lockdown:
        return f"the kernel is locked down (secure boot): {_SIGNED_ONLY}"
    if read(root / "sys/module/module/parameters/sig_enforce") == "Y":
        return f"module.sig_enforce is set: {_SIGNED_ONLY}"
    return ""


def kernel_release(root: Path) -> str:
    """The release of the kernel that `root` tells of, else of the running one."""
    return read(root / "proc/sys/kernel/osrelease") or os.uname().release


def read(path: Path) -> str:
    """The text of a small file, empty when it cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""


def _shows_itself(root: Path, name: str) -> bool:
    if name == "tls":
        return "tls" in read(root / "proc/sys/net/ipv4/tcp_available_ulp").split()
    return name in _EVIDENCE and (root / _EVIDENCE[name]).is_dir()


def _modprobe_ban(root: Path, name: str) -> str:
    """An `install NAME /bin/false` of modprobe.d(5). A `blacklist` stops only autoloading."""
    seen: set[str] = set()
    for folder in _CONF_DIRS:
        for file in sorted((root / folder).glob("*.conf")):
            if file.name in seen:  # an earlier directory overrides a file of the same name
                continue
            seen.add(file.name)
            for line in read(file).splitlines():
                words = line.split()
                if words[:1] == ["install"] and [_plain(w) for w in words[1:2]] == [name]:
                    return f"/{folder}/{file.name} says: {' '.join(words)}"
    return ""


def _names(path: Path) -> frozenset[str]:
    """Module names of modules.dep or modules.builtin (kmod: one path a line, `:` after it)."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    files = (line.partition(":")[0].rpartition("/")[2] for line in lines)
    return frozenset(_plain(file.partition(".")[0]) for file in files)


def _plain(name: str) -> str:
    """modprobe takes - and _ for the same; /sys/module spells all with _."""
    return name.replace("-", "_")
