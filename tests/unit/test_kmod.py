# SPDX-License-Identifier: Apache-2.0
"""R68: why a module is not there, in the words an operator can act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from usbdra.kmod import ModuleState, look

RELEASE = "6.12.0-test"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with a module index that has usbip_host and vhci_hcd, none of them loaded."""
    write(tmp_path, "proc/sys/kernel/osrelease", f"{RELEASE}\n")
    write(
        tmp_path,
        f"lib/modules/{RELEASE}/modules.dep",
        "kernel/drivers/usb/usbip/usbip-host.ko.xz: kernel/drivers/usb/usbip/usbip-core.ko.xz\n"
        "kernel/drivers/usb/usbip/vhci-hcd.ko:\n",
    )
    write(tmp_path, f"lib/modules/{RELEASE}/modules.builtin", "kernel/net/tls/tls.ko\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_r68_loaded(root: Path) -> None:
    (root / "sys/module/vhci_hcd").mkdir(parents=True)
    assert look(root, "vhci_hcd").state is ModuleState.LOADED


def test_r68_built_in_by_the_index(root: Path) -> None:
    assert look(root, "tls").state is ModuleState.BUILT_IN


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("vhci_hcd", "sys/bus/platform/drivers/vhci_hcd"),
        ("usbip_host", "sys/bus/usb/drivers/usbip-host"),
    ],
)
def test_r68_built_in_driver_without_a_module_file(tmp_path: Path, name: str, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    found = look(tmp_path, name)
    assert (found.state, found.state.works) == (ModuleState.BUILT_IN, True)


def test_r68_built_in_tls_shows_in_the_list_of_protocols(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/net/ipv4/tcp_available_ulp", "espintcp mptcp tls\n")
    assert look(tmp_path, "tls").state is ModuleState.BUILT_IN


def test_r68_only_loadable(root: Path) -> None:
    found = look(root, "usbip_host")
    assert (found.state, found.state.works) == (ModuleState.LOADABLE, False)
    assert found.remedy == "run: modprobe usbip_host"
    assert found.detail == ""


def test_r68_not_in_this_kernel(root: Path) -> None:
    found = look(root, "usbip_vudc")
    assert found.state is ModuleState.MISSING
    assert found.detail == f"kernel {RELEASE} has no such module"
    assert f"linux-modules-extra-{RELEASE}" in found.remedy


def test_r68_no_index_here_is_not_taken_for_missing(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/kernel/osrelease", f"{RELEASE}\n")
    found = look(tmp_path, "vhci_hcd")
    assert found.state is ModuleState.UNKNOWN
    assert "run on the host: modprobe vhci_hcd" in found.remedy


def test_r68_loading_switched_off(root: Path) -> None:
    write(root, "proc/sys/kernel/modules_disabled", "1\n")
    found = look(root, "vhci_hcd")
    assert found.state is ModuleState.FORBIDDEN
    assert "kernel.modules_disabled=1" in found.detail


def test_r68_forbidden_by_the_distributions_hardening(root: Path) -> None:
    write(
        root,
        "usr/lib/modprobe.d/30-security.conf",
        "# usbip\ninstall usbip-host /usr/bin/disabled-by-policy\nblacklist vhci_hcd\n",
    )
    found = look(root, "usbip_host")
    assert found.state is ModuleState.FORBIDDEN
    assert found.detail == (
        "/usr/lib/modprobe.d/30-security.conf says: install usbip-host /usr/bin/disabled-by-policy"
    )
    # A blacklist keeps a module from loading by itself, not by name.
    assert look(root, "vhci_hcd").state is ModuleState.LOADABLE


def test_r68_an_administrators_file_overrides_the_distributions(root: Path) -> None:
    write(root, "usr/lib/modprobe.d/30-security.conf", "install usbip_host /bin/false\n")
    write(root, "etc/modprobe.d/30-security.conf", "")
    assert look(root, "usbip_host").state is ModuleState.LOADABLE


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", "secure boot"),
        ("sys/module/module/parameters/sig_enforce", "Y\n", "module.sig_enforce is set"),
    ],
)
def test_r68_signatures_are_wanted(root: Path, file: str, text: str, words: str) -> None:
    write(root, file, text)
    found = look(root, "vhci_hcd")
    assert found.state is ModuleState.LOADABLE
    assert words in found.detail
    assert "only signed modules load" in found.detail
