# SPDX-License-Identifier: Apache-2.0
"""Stock Debian kernels, unpacked and never installed.

Owns which packages the kernel series come from and the shape of an unpacked kernel. Must not
know how a node is booted.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.bed.apt import Archive
from tests.bed.cache import digest, entry
from tests.bed.errors import BedError
from tests.bed.host import program, run
from tests.bed.images import ext4_image
from tests.bed.progress import step

# kernel series -> the metapackage whose dependency is its newest signed image
SERIES = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
# drivers for hardware that no node has; they are half of the modules' size
UNUSED = ("drivers/gpu", "drivers/net/ethernet", "drivers/net/wireless", "drivers/infiniband")


@dataclass(frozen=True)
class Kernel:
    """One unpacked kernel: its series ("6.12"), release (uname -r) and folder."""

    series: str
    release: str
    root: Path

    @property
    def image(self) -> Path:
        """The bzImage."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        """lib/modules/<release>, with the files depmod makes."""
        return self.root / "lib" / "modules" / self.release

    @property
    def modules_image(self) -> Path:
        """ext4 image of lib/modules, for a node's second drive."""
        return self.root / "modules.img"


def stock_kernel(series: str) -> Kernel:
    """The newest stock Debian kernel of a series, from the cache or the archive.

    Raises BedError for a series that Debian does not have.
    """
    if series not in SERIES:
        raise BedError(f"kernel {series}: known are {', '.join(SERIES)}")
    archive = Archive()
    archive.refresh()
    depends = archive.newest(SERIES[series]).depends
    match = re.match(r"(linux-image-(\S+)) \(= (\S+)\)", depends)
    if match is None:
        raise BedError(f"{SERIES[series]}: no kernel image in its dependencies: {depends}")
    package, release, version = match.groups()

    def build(folder: Path) -> None:
        with step(f"fetching and unpacking kernel {release} ({version})"):
            deb = archive.download(package, version, folder)
            run(["dpkg-deb", "-x", deb, folder])
            deb.unlink()
            for path in UNUSED:
                run(["rm", "-rf", folder / "lib/modules" / release / "kernel" / path])
            run([program("depmod"), "-b", folder, release])
            ext4_image(folder / "lib" / "modules", folder / "modules.img", label="modules")

    key = digest(package, version, UNUSED, "v1")
    return Kernel(series, release, entry("kernel", f"{release}-{key[:8]}", build))
