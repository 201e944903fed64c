# SPDX-License-Identifier: Apache-2.0
"""Long-running host processes of a bed: started so that they end with it, ended by pid.

Owns the start and the end of such processes, nothing else.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
END_WAIT_S = 5.0


def spawn(
    argv: list[str],
    *,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    detached: bool = False,
    keep_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, stderr joined to stdout.

    Unless detached, the kernel kills it when the calling thread ends (prctl(2)), so a killed
    test run leaves no machine behind: call from a thread that outlives it, as a rule the main one.
    """
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=keep_fds,
        # the hook is one system call, prepared before the fork: safe beside other threads
        preexec_fn=None if detached else _end_with_parent(),  # noqa: PLW1509
    )


def _end_with_parent() -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask


def stop(process: subprocess.Popen[bytes], signum: int = signal.SIGTERM) -> int:
    """End a process, by force when it does not listen; returns its status."""
    if process.poll() is None:
        process.send_signal(signum)
        try:
            process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def end_recorded(pidfile: Path, marker: str, signum: int = signal.SIGKILL) -> None:
    """End a detached process by the file with its id, and wait until it has ended.

    Nothing happens unless its command line holds `marker`: an id may belong to another program
    by now. By force when it does not listen to `signum`.
    """
    try:
        pid = int(pidfile.read_text())
        watch = os.pidfd_open(pid)
    except (FileNotFoundError, ProcessLookupError):
        return
    try:
        if marker.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return
        for number in (signum, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if select.select([watch], [], [], END_WAIT_S)[0]:
                return
    except FileNotFoundError:  # it ended just now
        return
    finally:
        os.close(watch)
