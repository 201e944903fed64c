# SPDX-License-Identifier: Apache-2.0
"""Loads kernel modules with libkmod, the library that modprobe itself is made of.

Owns the calls. Dependencies, compression, soft dependencies and options of modprobe.d are
libkmod's work; `install` commands of modprobe.d are not run. Whether a load is wanted at all is
decided by callers (kmod.py knows what forbids one).
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

from usbdra.errors import KernelUnsupported

LIBRARY = "libkmod.so.2"

# libkmod.h, enum kmod_probe.
_IGNORE_COMMAND = 0x0004
_APPLY_BLACKLIST = 0x0002_0000

_REMEDIES = {
    errno.EKEYREJECTED: "the kernel takes signed modules only: install the distribution's own "
    "kernel package, or enroll the key that signed this module",
    errno.EPERM: "module loading is not permitted here: give the container CAP_SYS_MODULE, and see "
    "kernel.modules_disabled and the kernel's lockdown",
    errno.ENOENT: "the kernel's module folder does not have it: install the kernel's extra modules",
    errno.ENOEXEC: "the module was built for another kernel: reboot after a kernel update",
    errno.EINVAL: "the kernel does not take it: see dmesg",
}


class Libkmod:
    """The running kernel's modules, below `/lib/modules/<release>` of `root`."""

    def __init__(self, root: Path, release: str) -> None:
        """Nothing is opened yet."""
        self._folder = root / "lib/modules" / release
        self._config = [str(root / d) for d in ("etc/modprobe.d", "run/modprobe.d")]
        self._config.append(str(root / "lib/modprobe.d"))

    def load(self, name: str) -> None:
        """Load a module and what it depends on; loaded already is success. Blocks.

        Raises KernelUnsupported with what was refused and the remedy.
        """
        library = _open()
        paths = (ctypes.c_char_p * (len(self._config) + 1))(
            *(path.encode() for path in self._config), None
        )
        context = library.kmod_new(os.fsencode(self._folder), paths)
        if not context:
            raise _refused(name, errno.ENOENT, f"{self._folder} cannot be read")
        try:
            self._insert(library, context, name)
        finally:
            library.kmod_unref(context)

    def _insert(self, library: Any, context: int, name: str) -> None:
        found = ctypes.c_void_p()
        code = library.kmod_module_new_from_lookup(context, name.encode(), ctypes.byref(found))
        if code < 0:
            raise _refused(name, -code, os.strerror(-code))
        if not found.value:
            raise _refused(name, errno.ENOENT, f"{self._folder} has no such module")
        try:
            module = library.kmod_module_get_module(found)
            flags = _IGNORE_COMMAND | _APPLY_BLACKLIST
            code = library.kmod_module_probe_insert_module(module, flags, None, None, None, None)
            library.kmod_module_unref(module)
        finally:
            library.kmod_module_unref_list(found)
        if code > 0:
            raise KernelUnsupported(
                f"module {name} is on a blacklist of modprobe.d; remove it there"
            )
        if code < 0:
            raise _refused(name, -code, os.strerror(-code))


def _refused(name: str, number: int, why: str) -> KernelUnsupported:
    remedy = _REMEDIES.get(number, "see dmesg")
    return KernelUnsupported(f"module {name} was not loaded: {why}; {remedy}")


def _open() -> Any:
    """libkmod with the types of what is called. Raises KernelUnsupported when it is not there."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise KernelUnsupported(
            f"{LIBRARY} is not installed (Debian: libkmod2); load the modules with modprobe"
        ) from error
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("kmod_new", pointer, (text, ctypes.POINTER(text))),
        ("kmod_unref", pointer, (pointer,)),
        ("kmod_module_new_from_lookup", ctypes.c_int, (pointer, text, ctypes.POINTER(pointer))),
        ("kmod_module_get_module", pointer, (pointer,)),
        ("kmod_module_unref", pointer, (pointer,)),
        ("kmod_module_unref_list", ctypes.c_int, (pointer,)),
        (
            "kmod_module_probe_insert_module",
            ctypes.c_int,
            (pointer, ctypes.c_uint, text, pointer, pointer, pointer),
        ),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
