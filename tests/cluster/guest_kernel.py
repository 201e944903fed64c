# SPDX-License-Identifier: Apache-2.0
"""The kernel of a virtual machine's guest: Debian's source, built with what the guest needs.

Owns that kernel's options. A stock kernel takes a minute to find the hardware which a machine may
have; in a machine inside an emulated machine, ten. This one has a serial console, a USB host
controller, disks and keyboards, no modules, and is started uncompressed (PVH): 1 s emulated.
"""

from __future__ import annotations

from pathlib import Path

from tests.bed.apt import Archive
from tests.bed.cache import digest, entry
from tests.bed.host import run
from tests.bed.progress import step

PACKAGE = "linux-source-6.1"
# Over the kernel's own "tinyconfig".
OPTIONS = """
64BIT BINFMT_ELF BINFMT_SCRIPT BLK_DEV_INITRD BLOCK BLK_DEV_SD DEVTMPFS EPOLL EXPERT FUTEX
HIGH_RES_TIMERS HYPERVISOR_GUEST INPUT MULTIUSER PARAVIRT POSIX_TIMERS PRINTK PROC_FS PVH SCSI
SERIAL_8250 SERIAL_8250_CONSOLE SYSFS TTY
ACPI PCI PCI_MMCONFIG PCI_MSI
HID HID_GENERIC USB USB_HID USB_STORAGE USB_SUPPORT USB_XHCI_HCD USB_XHCI_PCI
"""
STAMP = {"KBUILD_BUILD_TIMESTAMP": "@0", "KBUILD_BUILD_USER": "bed", "KBUILD_BUILD_HOST": "bed"}
BUILD_SECONDS = 3600.0


def guest_kernel() -> Path:
    """The kernel, an ELF file for QEMU's -kernel, from the cache or built now.

    Raises:
        HostError: a program is missing (tests/host_packages.py machines), or the build failed.
    """
    archive = Archive()
    archive.refresh()
    version, options = archive.newest(PACKAGE).version, OPTIONS.split()

    def build(folder: Path) -> None:
        with step(f"building a guest's kernel of {PACKAGE} {version}"):
            unpacked, source = folder / "unpacked", folder / "source"
            run(["dpkg-deb", "-x", archive.download(PACKAGE, version, folder), unpacked])
            source.mkdir()
            tar = unpacked / "usr/src" / f"{PACKAGE}.tar.xz"
            run(["tar", "-xf", tar, "-C", source, "--strip-components=1"])
            run(["make", "tinyconfig"], cwd=source)
            with (source / ".config").open("a") as config:  # of two lines the last one counts
                config.writelines(f"CONFIG_{name}=y\n" for name in options)
            run(["make", "olddefconfig"], cwd=source)
            run(["make", "-j2", "vmlinux"], cwd=source, env=STAMP, timeout=BUILD_SECONDS)
            run(["strip", "-s", "-o", folder / "vmlinux", source / "vmlinux"])
            run(["rm", "-rf", source, unpacked, *folder.glob("*.deb")])

    return entry("guest-kernel", digest(version, options, STAMP, "v1"), build) / "vmlinux"
