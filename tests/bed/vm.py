# SPDX-License-Identifier: Apache-2.0
"""One virtual machine: its QEMU process, console log and sockets.

Owns the QEMU command line. Must not know what runs inside.
"""

import re
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.bed.errors import BedError, NodeDown
from tests.bed.host import program
from tests.bed.images import overlay
from tests.bed.net import Network
from tests.bed.process import end_recorded, spawn, stop
from tests.bed.qmp import Qmp

CONTROL_PORT = "org.usbdra.control"
# what the kernel prints when it is no longer to be trusted
OOPS = re.compile(
    r"Kernel panic|\bOops: |\bBUG: |general protection fault|Internal error|kernel BUG at"
    r"|soft lockup|hung_task|blocked for more than"
)
# buses that USB devices are plugged into: 5 Gbit/s and below; 480 Mbit/s and below
SUPER_BUS, HIGH_BUS = "xhci.0", "ehci.0"


@dataclass(frozen=True)
class Drive:
    """A read-only image; the guest finds it by its serial (at most 20 bytes)."""

    serial: str
    image: Path


@dataclass(frozen=True)
class Machine:
    """What a virtual machine is made of. Memory in MiB.

    drives are shared and read-only; of each image in copies the machine writes its own copy.
    """

    name: str
    folder: Path
    kernel: Path
    initrd: Path
    append: str
    root: Path
    accelerator: list[str]
    mac: str
    memory: int = 768
    cpus: int = 1
    drives: tuple[Drive, ...] = ()
    copies: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json` in another process."""
        return {key: _plain(value) for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What `to_json` wrote."""
        paths = {key: Path(values[key]) for key in ("folder", "kernel", "initrd", "root")}
        return cls(
            **{
                **values,
                **paths,
                "drives": tuple(Drive(d["serial"], Path(d["image"])) for d in values["drives"]),
                "copies": tuple(Path(image) for image in values["copies"]),
            }
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


class Vm:
    """A running machine.

    A detached one outlives this process (see process.spawn), holds `keep_fds` open, and may have
    been started by another process.
    """

    def __init__(
        self,
        machine: Machine,
        network: Network,
        *,
        detached: bool = False,
        keep_fds: tuple[int, ...] = (),
    ) -> None:
        self.machine = machine
        self.network = network
        self._detached, self._keep_fds = detached, keep_fds
        self.console = machine.folder / "console.log"
        self.control_socket = machine.folder / "control.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None

    def start(self) -> None:
        """Start QEMU; returns when its sockets are there."""
        folder = self.machine.folder
        folder.mkdir(parents=True, exist_ok=True)
        for image, disk in self._own_disks():
            if not disk.exists():  # a machine powered on again keeps its disks
                overlay(image, disk)
        (folder / "qmp.sock").unlink(missing_ok=True)
        tap = self.network.add_tap(self.machine.name)
        argv = self.network.inside(self._argv(tap))
        with (folder / "qemu.log").open("wb") as log:
            self._process = spawn(
                argv, stdout=log, detached=self._detached, keep_fds=self._keep_fds
            )
        (folder / "qemu.pid").write_text(str(self._process.pid))
        limit = time.monotonic() + 20
        while not (folder / "qmp.sock").exists():
            if self._process.poll() is not None or time.monotonic() > limit:
                text = (folder / "qemu.log").read_text()
                raise BedError(f"QEMU of {self.machine.name} does not start: {text}")
            time.sleep(0.02)

    def _own_disks(self) -> list[tuple[Path, Path]]:
        """(image, the machine's own copy) of each disk that it writes, the root first."""
        images = [self.machine.root, *self.machine.copies]
        names = ["root", *(f"copy{number}" for number in range(len(self.machine.copies)))]
        return [
            (image, self.machine.folder / f"{name}.qcow2")
            for image, name in zip(images, names, strict=True)
        ]

    def _argv(self, tap: str) -> list[str]:
        m = self.machine
        argv = [program("qemu-system-x86_64"), "-name", m.name, "-machine", "q35"]
        argv += [*m.accelerator, "-smp", str(m.cpus), "-m", str(m.memory), "-nodefaults"]
        argv += ["-display", "none", "-kernel", str(m.kernel), "-initrd", str(m.initrd)]
        # An emulated processor stands still whenever its host does: two minutes are no lockup.
        words = "console=ttyS0 quiet mitigations=off watchdog_thresh=60"
        argv += ["-append", f"{words} {m.append}"]
        argv += ["-serial", f"file:{self.console}"]
        argv += ["-qmp", f"unix:{m.folder}/qmp.sock,server=on,wait=off"]
        for _, disk in self._own_disks():  # the root first: it is vda
            argv += ["-drive", f"file={disk},if=none,id={disk.stem},cache=unsafe,format=qcow2"]
            argv += ["-device", f"virtio-blk-pci,drive={disk.stem},serial={disk.stem}"]
        for drive in m.drives:
            argv += ["-drive", f"file={drive.image},if=none,id={drive.serial},format=raw,"]
            argv[-1] += "readonly=on"
            argv += ["-device", f"virtio-blk-pci,drive={drive.serial},serial={drive.serial}"]
        argv += ["-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no"]
        argv += ["-device", f"virtio-net-pci,netdev=net,mac={m.mac}"]
        argv += ["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
        argv += ["-chardev", f"socket,id=control,path={self.control_socket},server=on,wait=off"]
        argv += ["-device", f"virtserialport,chardev=control,name={CONTROL_PORT}"]
        # slower devices than 480 Mbit/s go on xHCI: the companions EHCI would need are slow here
        argv += ["-device", "qemu-xhci,id=xhci,p2=8,p3=8", "-device", "usb-ehci,id=ehci"]
        argv += [
            "-audiodev",
            "none,id=silence",
        ]  # for usb-audio, the one device with isochronous ends
        return argv

    @property
    def qmp(self) -> Qmp:
        """The machine's QMP client, connected at first use."""
        if self._qmp is None:
            self._qmp = Qmp(self.machine.folder / "qmp.sock")
        return self._qmp

    def check(self) -> None:
        """Raise NodeDown when QEMU has ended or the kernel has printed an oops."""
        if self._process is not None and self._process.poll() is not None:
            rc = self._process.returncode
            raise NodeDown(f"QEMU of {self.machine.name} ended (status {rc})\n{self.log_tail()}")
        if match := OOPS.search(self.log()):
            where = self.log()[max(match.start() - 200, 0) : match.start() + 3000]
            raise NodeDown(f"kernel of {self.machine.name} is broken:\n{where}")

    def log(self) -> str:
        """All that the machine has printed on its console."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the console."""
        return "\n".join(self.log().splitlines()[-lines:])

    def reset(self) -> None:
        """Press the reset button."""
        self.qmp.command("system_reset")

    def power_off(self) -> None:
        """Pull the plug: no shutdown, no packet says goodbye."""
        self.close()
        if self._detached:
            end_recorded(self.machine.folder / "qemu.pid", str(self.machine.folder))
            if self._process is not None:
                self._process.wait()
                self._process = None

    def freeze(self) -> None:
        """Stop the processor; the machine goes silent but keeps its state."""
        self.qmp.command("stop")

    def thaw(self) -> None:
        """Let a frozen machine go on."""
        self.qmp.command("cont")

    def close(self) -> None:
        """End QEMU; a detached one goes on."""
        if self._qmp is not None:
            self._qmp.close()
            self._qmp = None
        if self._process is not None and not self._detached:
            stop(self._process)
            self._process = None
