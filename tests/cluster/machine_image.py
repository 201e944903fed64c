# SPDX-License-Identifier: Apache-2.0
"""An image with a virtual machine in it: this host's QEMU, a small kernel, a guest that tells.

Owns the image. The guest has nothing but its USB drivers and a shell: it says on its serial
console which USB devices it sees, each time that changes, and what is on a disk that comes.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.bed.cache import digest, entry, tree_digest
from tests.bed.host import program, run
from tests.bed.initrd import cpio
from tests.bed.progress import step
from tests.cluster.guest_kernel import guest_kernel
from tests.cluster.images import ImageConfig, Layer, busybox, busybox_layer, write_archive

NAME = "localhost/machine:1"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_PLUGINS = ("accel-tcg-x86_64.so", "hw-usb-host.so")
_FIRMWARE = ("bios-microvm.bin", "linuxboot_dma.bin", "kvmvapic.bin", "pvh.bin")
_INIT = """\
#!/bin/busybox sh
# Says what USB devices there are, whenever that changes, and what a disk begins with.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo 1 >/proc/sys/kernel/printk
echo "guest: ready"
said=none
while :; do
  seen=
  for d in /sys/bus/usb/devices/*/serial; do
    d=${d%/serial}
    case ${d##*/} in usb*|'*') continue;; esac  # root hubs, and none at all
    serial=$(cat "$d/serial" 2>/dev/null) && at=$(cat "$d/devpath" 2>/dev/null) || continue
    seen="$seen $serial@$at"  # and not a device that went while it was read
  done
  [ "$seen" = "$said" ] || { said=$seen; echo "guest: usb$said"; }
  for b in /sys/block/sd*; do
    [ -e "$b" ] || continue
    [ "$b" = "$told" ] && continue
    n=/dev/${b##*/}
    sum=$(head -c 65536 "$n" 2>/dev/null | sha256sum) && told=$b && echo "guest: disk ${sum%% *}"
  done
  [ -e "$told" ] || told=
  sleep 0.2
done
"""


def machine_archive() -> Path:
    """The image's archive, from the cache or built now.

    Raises:
        HostError: QEMU or busybox is missing here (Debian packages qemu-system-x86 and
            busybox-static).
    """
    qemu, kernel = Path(program("qemu-system-x86_64")), guest_kernel()

    def build(folder: Path) -> None:
        with step(f"building {NAME}"):
            layers = [busybox_layer(busybox()), _machine(qemu, kernel)]
            config = ImageConfig(command=("/bin/sh",), environment={"PATH": "/bin:/usr/bin"})
            write_archive(folder / "machine.tar", NAME, layers, config)

    key = digest(tree_digest([Path(__file__), qemu, busybox()]), kernel.parent.name, "v2")
    return entry("machine-image", key, build) / "machine.tar"


def _machine(qemu: Path, kernel: Path) -> bytes:
    layer = Layer()
    for path in ("lib64", "usr/lib", _LIBRARIES, f"{_LIBRARIES}/qemu", "usr/share/qemu", "boot"):
        layer.directory(path)
    plugins = [Path("/", _LIBRARIES, "qemu", name) for name in _PLUGINS]
    loader, libraries = _needed([qemu, *plugins])
    layer.file("lib64/ld-linux-x86-64.so.2", loader.read_bytes(), 0o755)
    for library in libraries:
        layer.file(f"{_LIBRARIES}/{library.name}", library.read_bytes(), 0o755)
    for plugin in plugins:
        layer.file(f"{_LIBRARIES}/qemu/{plugin.name}", plugin.read_bytes(), 0o755)
    for name in _FIRMWARE:
        layer.file(f"usr/share/qemu/{name}", Path("/usr/share/qemu", name).read_bytes())
    layer.file("usr/bin/qemu-system-x86_64", qemu.read_bytes(), 0o755)
    layer.file("boot/kernel", kernel.read_bytes())
    layer.file("boot/initrd", guest())
    return layer.finish()


def guest() -> bytes:
    """The guest's initrd, plain: unpacking costs an emulated processor more than reading."""
    files = {"bin/busybox": busybox().read_bytes(), "init": _INIT.encode()}
    return cpio(files, ("bin", "dev", "proc", "sys"))


def _needed(programs: list[Path]) -> tuple[Path, list[Path]]:
    """The loader, and the libraries that these load, by the names they ask for."""
    text = "\n".join(run(["ldd", path]) for path in programs)
    loader = re.search(r"(/lib64/\S+)", text)
    assert loader is not None, text
    found = {Path(path) for path in re.findall(r"=> (/\S+)", text)}
    return Path(loader[1]), sorted(found, key=lambda path: path.name)
