# SPDX-License-Identifier: Apache-2.0
"""A node as tests use it: commands, files, helpers that run inside, power.

Owns the rule that only an explicit exit status counts: silence, power loss and a kernel oops
are errors. Must not know how the image was made.
"""

import base64
import queue
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

from tests.bed.channel import Channel, Pending
from tests.bed.errors import BedError, CommandFailed, CommandTimeout, NodeDown
from tests.bed.vm import Vm

GRACE_S = 15.0  # beyond a command's own limit, for the answer to arrive
CHUNK = 24576
BOOT_S = 300.0


@dataclass(frozen=True)
class Result:
    """How a command ended: exit status, its output, and the seconds it took as seen here."""

    rc: int
    out: str
    err: str
    seconds: float


def words(command: str | list[str]) -> list[str]:
    """A text is a shell command, a list is taken as it is."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else command


class Process:
    """A command running in a node. Its output collects in `out` and `err`."""

    def __init__(self, node: "Node", argv: list[str], pending: Pending) -> None:
        self.node, self.argv = node, argv
        self.out = self.err = ""
        self.rc: int | None = None
        self.timed_out = False
        self.pid = 0
        self._raw = {"out": b"", "err": b""}
        self._pending = pending
        self._start = time.monotonic()

    def _take(self, deadline: float) -> None:
        event = self._pending.next(deadline)
        if event["ev"] == "started":
            self.pid = event["pid"]
        elif event["ev"] == "exit":
            self.rc, self.timed_out = event["rc"], event["timeout"]
            self.node.channel.forget(self._pending)
        else:
            self._raw[event["ev"]] += base64.b64decode(event["data"])
            self.out = self._raw["out"].decode(errors="replace")
            self.err = self._raw["err"].decode(errors="replace")

    def wait(self, timeout: float = 60) -> Result:
        """Wait for the end. Raises CommandTimeout; the command then goes on."""
        deadline = time.monotonic() + timeout
        while self.rc is None:
            try:
                self._take(deadline)
            except TimeoutError:
                raise CommandTimeout(self._text(f"no end within {timeout:.0f} s")) from None
        return Result(self.rc, self.out, self.err, time.monotonic() - self._start)

    def wait_for(self, pattern: str, timeout: float = 60) -> re.Match[str]:
        """Wait until the output (out or err) matches. Raises CommandTimeout, CommandFailed."""
        deadline = time.monotonic() + timeout
        while True:
            if match := re.search(pattern, self.out) or re.search(pattern, self.err):
                return match
            if self.rc is not None:
                raise CommandFailed(self.node.name, self.argv, self.rc, self.out, self.err)
            try:
                self._take(deadline)
            except TimeoutError:
                text = self._text(f"no {pattern!r} in its output within {timeout:.0f} s")
                raise CommandTimeout(text) from None

    def signal(self, signum: int = SIGTERM) -> None:
        """Send a signal to the command and its children."""
        self.node.channel.ask("signal", GRACE_S, target=self._pending.id, signum=signum)

    def stop(self, signum: int = SIGTERM, timeout: float = 20) -> Result:
        """End the command and wait for it; by force at the time limit."""
        if self.rc is None:
            self.signal(signum)
            try:
                return self.wait(timeout)
            except CommandTimeout:
                self.signal(SIGKILL)
        return self.wait(timeout)

    def _text(self, what: str) -> str:
        output = f"{self.out[-3000:]}\n{self.err[-3000:]}".strip()
        return f"node {self.node.name}: {' '.join(self.argv)[:300]}: {what}\n{output}"


class Node:
    """One machine of a bed, ready to be used."""

    def __init__(self, vm: Vm, release: str, ip4: str, ip6: str) -> None:
        self.vm, self.release, self.ip, self.ip6 = vm, release, ip4, ip6
        self.name = vm.machine.name
        self._boot_id = ""
        self._channel: Channel | None = None
        self._lock = threading.Lock()

    @property
    def channel(self) -> Channel:
        """The control channel, connected at first use."""
        with self._lock:
            if self._channel is None:
                self._channel = Channel(self.vm.control_socket, self.vm.check)
            return self._channel

    def wait_ready(self, timeout: float = BOOT_S) -> None:
        """Wait until the control server of a boot that we do not know yet answers."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                boot = self.channel.hello.get(timeout=0.5)
            except queue.Empty:
                self.vm.check()
                continue
            if boot != self._boot_id:
                self._boot_id = boot
                return
        tail = self.vm.log_tail()
        raise NodeDown(f"node {self.name} not up within {timeout:.0f} s; its console:\n{tail}")

    @property
    def boot_id(self) -> str:
        """The kernel's id of this boot; a node that another process has booted is asked."""
        if not self._boot_id:
            self._boot_id = self.channel.ask("hello", GRACE_S)["boot"]
        return self._boot_id

    def start(
        self,
        command: str | list[str],
        *,
        limit: float | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
        cwd: str | None = None,
    ) -> Process:
        """Start a command; `limit` in seconds, after which the node itself kills it."""
        argv = words(command)
        data = None if stdin is None else base64.b64encode(stdin).decode()
        pending = self.channel.send(
            "spawn", argv=argv, timeout=limit, env=env or {}, stdin=data, cwd=cwd
        )
        process = Process(self, argv, pending)
        try:
            process._take(time.monotonic() + GRACE_S)
        except TimeoutError:
            raise NodeDown(f"node {self.name} does not answer\n{self.vm.log_tail()}") from None
        return process

    def run(
        self,
        command: str | list[str],
        *,
        timeout: float = 60,
        check: bool | int = True,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
        cwd: str | None = None,
    ) -> Result:
        """Run a command to its end, killed in the node after `timeout` seconds.

        check: True wants status 0, a number that status, False takes any. Raises CommandFailed,
        CommandTimeout, NodeDown.
        """
        process = self.start(command, limit=timeout, env=env, stdin=stdin, cwd=cwd)
        try:
            result = process.wait(timeout + GRACE_S)
        except CommandTimeout as e:
            raise NodeDown(f"node {self.name} went silent: {e}\n{self.vm.log_tail()}") from e
        if process.timed_out:
            raise CommandTimeout(process._text(f"killed after {timeout:.0f} s"))
        self.vm.check()
        if check is not False and result.rc != int(check is not True and check):
            raise CommandFailed(self.name, process.argv, result.rc, result.out, result.err)
        return result

    def sh(self, command: str, *, timeout: float = 60) -> str:
        """Run a shell command that must succeed; its output without the last line feed."""
        return self.run(command, timeout=timeout).out.rstrip("\n")

    def python(
        self, code: str, *args: str, timeout: float = 60, check: bool | int = True
    ) -> Result:
        """Run Python code in a new interpreter of the node (the project's, with the wheel)."""
        argv = ["/opt/usbdra/bin/python", "-c", code, *args]
        return self.run(argv, timeout=timeout, check=check)

    def call(self, function: str, *args: Any, timeout: float = 60, **kwargs: Any) -> Any:
        """Call MODULE.FUNCTION of tests/bed/guest in the control server; JSON both ways.

        Raises BedError with the exception's text, NodeDown when no answer comes.
        """
        try:
            event = self.channel.ask(
                "call", timeout, function=function, args=list(args), kwargs=kwargs
            )
        except TimeoutError:
            self.vm.check()
            raise NodeDown(f"node {self.name}: no answer from {function}") from None
        except NodeDown:
            raise
        except BedError as e:
            raise BedError(f"node {self.name}: {function}{args}: {e}") from e
        return event["result"]

    def write(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file in the node, making its folder."""
        raw = data.encode() if isinstance(data, str) else data
        for start in range(0, max(len(raw), 1), CHUNK):
            part = base64.b64encode(raw[start : start + CHUNK]).decode()
            self.channel.ask("write", GRACE_S, path=path, data=part, mode=mode, append=start > 0)

    def read(self, path: str, timeout: float = 60) -> bytes:
        """Contents of a file in the node."""
        pending = self.channel.send("read", path=path)
        data, deadline = b"", time.monotonic() + timeout
        try:
            while (event := pending.next(deadline))["ev"] != "done":
                data += base64.b64decode(event["data"])
        except TimeoutError:
            raise NodeDown(f"node {self.name}: {path} not read in {timeout:.0f} s") from None
        finally:
            self.channel.forget(pending)
        return data

    def push(self, source: Path, target: str) -> None:
        """Copy a file of this machine into the node."""
        self.write(target, source.read_bytes(), source.stat().st_mode & 0o777)

    def pull(self, source: str, target: Path) -> None:
        """Copy a file of the node to this machine."""
        target.write_bytes(self.read(source))

    def reset(self) -> None:
        """Press reset and wait until the node is up again."""
        self.vm.reset()
        self.wait_ready()

    def power_off(self) -> None:
        """Pull the plug."""
        self.close()
        self.vm.power_off()

    def power_on(self) -> None:
        """Start the machine again, with the disk it had, and wait until it is up."""
        self.vm.start()
        self.wait_ready()

    def close(self) -> None:
        """Let go of the control channel."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
