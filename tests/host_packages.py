# SPDX-License-Identifier: Apache-2.0
"""Install the Debian packages for building (`build`), test beds (`bed`), and some tests.

Stdlib only and any Python 3.9+: it runs before the project's environment exists. Says what it
installs and why; installs nothing when all is there.
"""

from __future__ import annotations

import os
import subprocess
import sys

SETS: dict[str, tuple[str, ...]] = {
    "build": ("gcc", "libc6-dev", "make", "python3-dev", "python3-venv", "usbip"),
    "bed": (
        "buildah",
        "busybox-static",
        "debian-archive-keyring",
        "e2fsprogs",
        "iproute2",
        "kmod",
        "mmdebstrap",
        "prometheus",
        "qemu-system-x86",
        "qemu-utils",
        "tcpdump",
        "xz-utils",
    ),
    "machines": ("bc", "bison", "flex", "gcc", "libelf-dev", "make"),
    "web": ("chromium-headless-shell", "fonts-dejavu-core"),
    "bench": ("strace",),
}
# The stock client, for one contract test: Ubuntu carries it in its kernel tools. A browser, for one
# test: Ubuntu has it as a snap alone.
OPTIONAL = {"usbip", "chromium-headless-shell"}


def installed(name: str) -> bool:
    """True if dpkg has the package in state installed."""
    query = ["dpkg-query", "-W", "-f=${db:Status-Status}", name]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout == "installed"


def available(name: str) -> bool:
    """True if apt knows a candidate."""
    done = subprocess.run(["apt-cache", "show", name], capture_output=True, check=False)
    return done.returncode == 0


def main(which: str) -> int:
    """Install what is missing of one set; returns an exit status."""
    missing = [name for name in SETS[which] if not installed(name)]
    if not missing:
        return 0
    print(f"== Debian packages for '{which}': {' '.join(missing)}", flush=True)
    if os.geteuid() != 0:
        print(f"   not root: run  apt-get install {' '.join(missing)}", file=sys.stderr)
        return 1
    # Programs are wanted, and not the services that come with some (prometheus).
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "SYSTEMD_OFFLINE": "1"}
    subprocess.run(["apt-get", "-qq", "update"], check=True, env=env)
    missing = [name for name in missing if name not in OPTIONAL or available(name)]
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing]
    return subprocess.run(install, check=False, env=env, stdout=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
