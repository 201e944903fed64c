# SPDX-License-Identifier: Apache-2.0
"""A made-up machine on which the real agent runs: its own /sys, /dev, /run and network namespace.

The agent is the program as it is installed. A mount namespace shows it a tree of
`tests.fakes.sysfs` as /sys and /dev, and keeps the host's mounts from it. Events reach it from the
kernel's own netlink group: who is root in a network namespace may send there
(lib/kobject_uevent.c `uevent_net_rcv_skb`).
So nothing in the product knows that the machine is made up. Owns the files and the process.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bed.process import spawn, stop
from tests.cluster.netns import command_inside, socket_inside
from tests.fakes.sysfs import FakeDevice, SysTree

NODE = "bench"
POD = "bench"
LIMIT_SECONDS = 60.0
NETLINK_KOBJECT_UEVENT = 15
UEVENT_SEND = 16  # any type that is not netlink's own; the kernel looks at nothing but that
NLM_F_REQUEST = 1

# What a program needs of /dev, and nothing else that is the host's.
_DEVICES = ("null", "zero", "random", "urandom")
# `ip netns exec` has made a mount namespace of its own already.
_ENCLOSE = """
set -e
mount --make-rprivate /
for device in {devices}; do mount --bind /dev/$device "$0/dev/$device"; done
mount --bind "$0/proc/self/mountinfo" /proc/1/mountinfo
mount -t tmpfs usbdra-memory "$0/memory"
mount --bind "$0/sys" /sys
mount --rbind "$0/dev" /dev
mount --bind "$0/run" /run
mount --bind "$0/lib" /var/lib
exec "$@"
"""


class Uevents:
    """Sends events to the kernel group of a network namespace, by default the caller's own."""

    def __init__(self, namespace: str | None = None) -> None:
        kind = (socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)
        self._socket = socket_inside(namespace, *kind) if namespace else socket.socket(*kind)

    def close(self) -> None:
        """No more events."""
        self._socket.close()

    def send(self, action: str, devpath: str, *properties: str) -> None:
        """One event, as a driver core's `kobject_uevent_env` would send it."""
        fields = (f"{action}@{devpath}", f"ACTION={action}", f"DEVPATH={devpath}", *properties)
        body = b"".join(field.encode() + b"\0" for field in fields)
        header = struct.pack("=IHHII", 16 + len(body), UEVENT_SEND, NLM_F_REQUEST, 1, 0)
        self._socket.sendto(header + body, (0, 0))

    def device(self, action: str, device: FakeDevice) -> None:
        """The events of a device and of its one interface, as the kernel orders them."""
        numbers = (f"BUSNUM={device.bus:03d}", f"DEVNUM={device.devnum:03d}")
        self.send(action, device.devpath, "SUBSYSTEM=usb", "DEVTYPE=usb_device", *numbers)
        interface = f"{device.devpath}/{device.interface_name(0)}"
        self.send(action, interface, "SUBSYSTEM=usb", "DEVTYPE=usb_interface")
        if action == "add":
            self.send("bind", interface, "SUBSYSTEM=usb", "DEVTYPE=usb_interface")
            self.send("bind", device.devpath, "SUBSYSTEM=usb", "DEVTYPE=usb_device", *numbers)


@dataclass(frozen=True)
class Account:
    """What a pod finds of the API server: address in the environment, token and CA as files."""

    host: str
    port: str
    token: str
    ca: str

    @property
    def environment(self) -> list[str]:
        """As `env` takes it."""
        return [f"KUBERNETES_SERVICE_HOST={self.host}", f"KUBERNETES_SERVICE_PORT={self.port}"]

    def store(self, directory: Path) -> None:
        """As the kubelet mounts it."""
        directory.mkdir(parents=True)
        (directory / "token").write_text(self.token)
        (directory / "ca.crt").write_text(self.ca)


class Machine:
    """One machine; a directory with a short name, for the paths of its sockets are limited."""

    def __init__(self, namespace: str, account: Account) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="usbdra-m-"))
        self.namespace = namespace
        self.tree = SysTree(self.root)
        self.tree.vhci()
        self.tree.usbip_host()
        self.kubelet = self.root / "kubelet"
        self._account = account
        self._agent: subprocess.Popen[bytes] | None = None
        (self.kubelet / "plugins_registry").mkdir(parents=True)
        for name in ("cdi", "run", "lib/usbdra", "memory"):
            (self.root / name).mkdir(parents=True)
        account.store(self.root / "run/secrets/kubernetes.io/serviceaccount")
        (self.tree.sys / "bus/usb/uevent").write_text("")  # where the agent's self-test writes
        for name in _DEVICES:
            (self.root / "dev" / name).touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.root)

    @property
    def registry(self) -> Path:
        """Where the agent's registration socket appears."""
        return self.kubelet / "plugins_registry"

    @property
    def log(self) -> Path:
        """What the agent said, a JSON object a line."""
        return self.root / "agent.log"

    @property
    def pid(self) -> int:
        """The agent's process."""
        assert self._agent is not None
        return self._agent.pid

    def inside(self, command: Sequence[str]) -> list[str]:
        """`command` on this machine; the process id stays its own."""
        script = _ENCLOSE.format(devices=" ".join(_DEVICES))
        enclosed = ["sh", "-c", script, str(self.root), *command]
        return command_inside(self.namespace, ["env", *self._account.environment, *enclosed])

    def told(self, module: str, *words: object) -> Any:
        """What a program of this folder says, in JSON, when it is run on this machine."""
        command = [sys.executable, "-m", f"bench.cluster.{module}", *map(str, words)]
        done = subprocess.run(self.inside(command), check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def grow(self, devices: int) -> None:
        """Plug in so many devices, 16 to a controller, before the agent starts."""
        for bus in range(20, 20 + (devices + 15) // 16):
            hub = self.tree.controller(f"0000:{bus:02x}:14.0").root_hub(bus)
            for port in range(1, min(16, devices) + 1):
                hub.plug(port, serial=b"GROWN%02dX%02d" % (bus, port))
            devices -= 16

    def start(self, before: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        """Start the agent, under a tracer's command when `before` has one."""
        options = {
            "node": NODE,
            "pod-uid": POD,
            "kubelet-dir": self.kubelet,
            "cdi-dir": self.root / "cdi",
            "exporter": "process",
        }
        flags = [*(f"--{name}={value}" for name, value in options.items()), *flags]
        command = [sys.executable, "-m", "usbdra", "agent", *flags]
        with self.log.open("wb") as log:
            self._agent = spawn(self.inside([*before, *command]), stdout=log)

    def stop(self) -> None:
        """End the agent."""
        if self._agent is not None:
            stop(self._agent)
            self._agent = None

    def wait_published(self) -> None:
        """Wait until the agent's slices are in the API; events reach it from then on."""
        self.wait_said("agent started")
        with contextlib.closing(Uevents(self.namespace)) as events:
            events.send("change", "/bus/usb", "SUBSYSTEM=bus")  # the answer to its self-test
        self.wait_file(self.root / f"run/usbdra/probe-{POD}.sock.ready")

    def wait_said(self, text: str) -> None:
        """Wait until the agent has logged `text`."""
        self._wait(lambda: text in self.log.read_text(), text)

    def wait_file(self, path: Path) -> None:
        """Wait until a file is there."""
        self._wait(path.exists, path.name)

    def wait_registration(self) -> None:
        """Wait until the agent's socket is where a kubelet looks for it."""
        self._wait(lambda: any(self.registry.iterdir()), "registration socket")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        assert self._agent is not None
        deadline = time.monotonic() + LIMIT_SECONDS
        while not done():
            if self._agent.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no {what!r} of the agent:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.01)


def resident_mib(pid: int) -> dict[str, float]:
    """Resident memory, and the part of it that is no file's (smaps_rollup), in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = {line.split(":")[0]: line.split() for line in text.splitlines()[1:]}
    names = {"resident_mib": "Rss", "anonymous_mib": "Anonymous"}
    return {ours: round(int(found[name][1]) / 1024, 1) for ours, name in names.items()}


def scheduled(pid: int) -> tuple[float, float]:
    """Seconds that all threads of a process ran so far, and that they were ready and did not."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    fields = [file.read_text().split() for file in files]
    return sum(int(f[0]) for f in fields) / 1e9, sum(int(f[1]) for f in fields) / 1e9
