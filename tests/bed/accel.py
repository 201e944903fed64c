# SPDX-License-Identifier: Apache-2.0
"""Which accelerator QEMU can use here: KVM when a stock kernel really boots on it, else TCG.

Owns that one answer, kept in the cache. /dev/kvm being there proves nothing: nested or
para-virtual KVM may open, run firmware, and then fail on a real kernel.
"""

import os
import platform
import subprocess
from pathlib import Path

from tests.bed.cache import digest, entry
from tests.bed.host import program, run
from tests.bed.kernels import Kernel
from tests.bed.progress import say

PROBE_S = 10.0
KVM = ["-accel", "kvm", "-cpu", "host"]
TCG = ["-accel", "tcg,thread=multi", "-cpu", "max"]


def accelerator(kernel: Kernel) -> list[str]:
    """QEMU's arguments for accelerator and processor."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    qemu = run([program("qemu-system-x86_64"), "--version"])
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    key = digest(kernel.release, qemu, cpu[:1], platform.release())

    def build(folder: Path) -> None:
        works = _boots(kernel)
        say(f"KVM {'boots' if works else 'does not boot'} a stock kernel on this machine")
        (folder / "works").write_text("yes" if works else "no")

    return KVM if (entry("kvm", key, build) / "works").read_text() == "yes" else TCG


def _boots(kernel: Kernel) -> bool:
    """True if the kernel gets as far as missing its root disk, and reboots for it."""
    argv = [program("qemu-system-x86_64"), *KVM, "-machine", "q35", "-m", "256", "-no-reboot"]
    argv += ["-display", "none", "-nodefaults", "-kernel", str(kernel.image)]
    try:
        done = subprocess.run(
            [*argv, "-append", "panic=-1"], capture_output=True, timeout=PROBE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
