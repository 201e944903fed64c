# SPDX-License-Identifier: Apache-2.0
"""libkmod itself on folders of modules: what it says when a module cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from usbdra.errors import KernelUnsupported
from usbdra.nodesetup import libkmod
from usbdra.nodesetup.libkmod import Libkmod

RELEASE = "6.12.0-test"


def test_r68_a_module_that_the_kernel_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "lib/modules" / RELEASE).mkdir(parents=True)
    with pytest.raises(KernelUnsupported, match=r"usbip_host was not loaded.*extra modules"):
        Libkmod(tmp_path, RELEASE).load("usbip_host")


def test_r68_a_file_that_is_no_module_is_refused_by_the_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "lib/modules" / RELEASE
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("vhci-hcd.ko:\n")
    (folder / "vhci-hcd.ko").write_bytes(b"\x7fELF not a module")
    with pytest.raises(KernelUnsupported, match="vhci_hcd was not loaded"):
        Libkmod(tmp_path, RELEASE).load("vhci_hcd")


def test_without_the_library_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libkmod, "LIBRARY", "libkmod-that-is-not-there.so.2")
    with pytest.raises(KernelUnsupported, match="Debian: libkmod2"):
        Libkmod(tmp_path, RELEASE).load("vhci_hcd")
