# SPDX-License-Identifier: Apache-2.0
"""Runs commands in a node for the test bed, over a virtio-serial port.

JSON lines both ways, each with the id of its request; several commands run at a time. Requests:
  {"id", "op": "spawn", "argv", "env", "cwd", "timeout", "stdin"}  events out, err, exit
  {"id", "op": "signal", "target": id of a spawn, "signum"}        event done
  {"id", "op": "write", "path", "data", "mode", "append"}          event done
  {"id", "op": "read", "path"}                                     events out, done
  {"id", "op": "call", "function": "module.name", "args", "kwargs"} event done with result
Data travels in base64. A failed request is answered by the event fail with a text. Standard
library only, and only what starts quickly under emulation.
"""

import base64
import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import threading
import time
import traceback

PORT = "/dev/virtio-ports/org.usbdra.control"
CHUNK = 24576


class Channel:
    """The port: whole lines in, whole lines out, from any thread."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.lock = threading.Lock()

    def send(self, **event):
        data = memoryview(json.dumps(event).encode() + b"\n")
        with self.lock:
            while data:
                data = data[os.write(self.fd, data) :]

    def lines(self):
        """Yield lines for ever; survives the host's end closing and coming back."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        rest = b""
        while True:
            ((_, events),) = poll.poll()
            data = os.read(self.fd, 65536) if events & select.POLLIN else b""
            if not data:  # nobody listens on the host: the port has no event for a new listener
                rest = b""
                time.sleep(0.05)
                continue
            *whole, rest = (rest + data).split(b"\n")
            yield from whole


class Command:
    """One running command: passes its output on, kills its group at the time limit."""

    def __init__(self, channel, request):
        self.channel, self.id = channel, request["id"]
        self.timeout = request.get("timeout")
        self.process = subprocess.Popen(
            request["argv"],
            env={**os.environ, **request.get("env", {})},
            cwd=request.get("cwd") or "/root",
            stdin=subprocess.PIPE if request.get("stdin") else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if request.get("stdin"):
            data = base64.b64decode(request["stdin"])
            threading.Thread(target=self.feed, args=(data,), daemon=True).start()

    def feed(self, data):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.close()

    def signal(self, signum):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signum)

    def follow(self):
        """Pass output on until the command ends; children that keep the pipes do not count."""
        exited = os.pidfd_open(self.process.pid)
        streams = {self.process.stdout.fileno(): "out", self.process.stderr.fileno(): "err"}
        poll = select.poll()
        for fd in (*streams, exited):
            poll.register(fd, select.POLLIN)
        limit = None if self.timeout is None else time.monotonic() + self.timeout
        ended = timed_out = False
        while not ended:
            left = None if limit is None else max(0, limit - time.monotonic())
            ready = poll.poll(None if left is None else left * 1000)
            if not ready:
                timed_out, limit = True, None
                self.signal(signal.SIGKILL)
            for fd, _ in ready:
                if fd == exited:
                    ended = True
                elif not self.pass_on(fd, streams[fd]):
                    poll.unregister(fd)
        for fd, name in streams.items():
            os.set_blocking(fd, False)
            while self.pass_on(fd, name):
                pass
        os.close(exited)
        rc = self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        self.channel.send(id=self.id, ev="exit", rc=rc, timeout=timed_out)

    def pass_on(self, fd, name):
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.channel.send(id=self.id, ev=name, data=base64.b64encode(data).decode())
        return bool(data)


class Server:
    """Answers requests; knows the running commands."""

    def __init__(self, channel):
        self.channel = channel
        self.commands = {}

    def serve(self):
        with open("/proc/sys/kernel/random/boot_id") as f:
            boot = f.read().strip()
        self.channel.send(id=0, ev="hello", boot=boot)
        for line in self.channel.lines():
            try:
                request = json.loads(line)
            except ValueError:
                continue  # the rest of a line whose sender went away
            try:
                getattr(self, "op_" + request["op"])(request)
            except Exception as e:
                text = f"{type(e).__name__}: {e}"
                self.channel.send(id=request.get("id", 0), ev="fail", text=text)

    def op_hello(self, request):
        with open("/proc/sys/kernel/random/boot_id") as f:
            self.channel.send(id=request["id"], ev="done", boot=f.read().strip())

    def op_spawn(self, request):
        command = Command(self.channel, request)
        self.commands[command.id] = command
        self.channel.send(id=command.id, ev="started", pid=command.process.pid)
        threading.Thread(target=self.watch, args=(command,), daemon=True).start()

    def watch(self, command):
        command.follow()
        del self.commands[command.id]

    def op_call(self, request):
        threading.Thread(target=self.call, args=(request,), daemon=True).start()

    def call(self, request):
        module, _, name = request["function"].rpartition(".")
        try:
            function = getattr(importlib.import_module(module), name)
            result = function(*request["args"], **request["kwargs"])
            self.channel.send(id=request["id"], ev="done", result=result)
        except Exception as e:
            text = f"{type(e).__name__}: {e}\n{traceback.format_exc()}"
            self.channel.send(id=request["id"], ev="fail", text=text)

    def op_signal(self, request):
        command = self.commands.get(request["target"])
        if command is not None:
            command.signal(request["signum"])
        self.channel.send(id=request["id"], ev="done")

    def op_write(self, request):
        path = request["path"]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab" if request.get("append") else "wb") as f:
            f.write(base64.b64decode(request["data"]))
            if request.get("mode") is not None:
                os.fchmod(f.fileno(), request["mode"])
        self.channel.send(id=request["id"], ev="done")

    def op_read(self, request):
        with open(request["path"], "rb") as f:
            while data := f.read(CHUNK):
                text = base64.b64encode(data).decode()
                self.channel.send(id=request["id"], ev="out", data=text)
        self.channel.send(id=request["id"], ev="done")


if __name__ == "__main__":
    while not os.path.exists(PORT):
        time.sleep(0.05)
    Server(Channel(PORT)).serve()
