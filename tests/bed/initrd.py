# SPDX-License-Identifier: Apache-2.0
"""The initial RAM disk of a node: busybox, the modules up to the root disk, our guest files.

Owns the cpio writer and the choice of modules. The guest files ride in the initrd so that a
change in them needs no new root disk.
"""

import gzip
import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bed.cache import digest, entry, tree_digest
from tests.bed.errors import BedError
from tests.bed.host import program
from tests.bed.kernels import Kernel

GUEST = Path(__file__).parent / "guest"
EARLY = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_rng",
    "crc32c_generic",
    "ext4",
)
FOLDERS = ("bin", "dev", "proc", "sys", "newroot", "modules", "bed")


def initrd(kernel: Kernel) -> Path:
    """The initrd of a kernel, from the cache or built now."""
    busybox = Path(program("busybox"))

    def build(folder: Path) -> None:
        modules = dict(early_modules(kernel, EARLY))
        files = {f"modules/{i:02d}-{name}": data for i, (name, data) in enumerate(modules.items())}
        files["bin/busybox"] = busybox.read_bytes()
        files["init"] = (GUEST / "initrd-init").read_bytes()
        for path in sorted(GUEST.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"bed/{path.relative_to(GUEST)}"] = path.read_bytes()
        packed = gzip.compress(cpio(files, FOLDERS), compresslevel=1, mtime=0)
        (folder / "initrd").write_bytes(packed)

    key = digest(kernel.root.name, tree_digest([GUEST, busybox]), EARLY, "v1")
    return entry("initrd", f"{kernel.release}-{key[:12]}", build) / "initrd"


def early_modules(kernel: Kernel, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """(file name, plain contents) of modules, each after those it depends on."""
    depends: dict[str, list[str]] = {}
    by_name: dict[str, str] = {}
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        depends[path] = rest.split()
        by_name[path.rpartition("/")[2].partition(".")[0].replace("-", "_")] = path
    builtin = (kernel.modules / "modules.builtin").read_text().replace("-", "_")
    done: set[str] = set()
    for name in names:
        if f"/{name}.ko" in builtin:
            continue
        if name not in by_name:
            raise BedError(f"kernel {kernel.release} has no module {name}")
        # modules.dep lists what a module needs from nearest to farthest
        for path in [*reversed(depends[by_name[name]]), by_name[name]]:
            if path not in done:
                done.add(path)
                data = (kernel.modules / path).read_bytes()
                plain = lzma.decompress(data) if path.endswith(".xz") else data
                yield path.rpartition("/")[2].partition(".")[0] + ".ko", plain


def cpio(files: dict[str, bytes], empty: Sequence[str] = ()) -> bytes:
    """A cpio archive in the kernel's "newc" format (Documentation/driver-api/early-userspace)."""
    out = bytearray()
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    for name in sorted({*empty, *folders}):
        _member(out, name, 0o040755, b"")
    for name, data in files.items():
        runnable = data[:2] == b"#!" or data[:4] == b"\x7fELF"
        _member(out, name, 0o100755 if runnable else 0o100644, data)
    _member(out, "TRAILER!!!", 0, b"")
    return bytes(out)


def _member(out: bytearray, name: str, mode: int, data: bytes) -> None:
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    out += b"070701" + b"".join(b"%08X" % value for value in fields) + path
    out += bytes(-len(out) % 4)
    out += data
    out += bytes(-len(out) % 4)
