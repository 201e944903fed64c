# SPDX-License-Identifier: Apache-2.0
"""What a process asks of the kernel while nothing happens: strace, counted by thread.

Owns the tracer's run and the reading of what it wrote. A call that was under way at the start and
has not returned is not counted: a thread that sleeps all along shows nothing.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from pathlib import Path

_LINE = re.compile(r"^(?P<thread>\d+) +(?:<\.\.\. )?(?P<name>[a-z_0-9]+)[( ]")


def trace(pid: int, seconds: float, file: Path) -> Counter[tuple[str, str]]:
    """Calls by (name of the thread, name of the call) that all threads made within `seconds`."""
    names = _threads(pid)
    command = ["strace", "-f", "-qq", "-s", "0", "-p", str(pid), "-o", str(file)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        time.sleep(seconds)
        assert tracer.poll() is None, tracer.stderr and tracer.stderr.read().decode()
    finally:
        tracer.terminate()
        tracer.communicate()
    return count(file.read_text(errors="replace"), names | _threads(pid))


def count(text: str, names: dict[int, str]) -> Counter[tuple[str, str]]:
    """Reads strace's lines: `PID call(...) = ...`, or the two halves of an interrupted one."""
    calls: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        found = _LINE.match(line)
        if found and "<unfinished" not in line and "<detached" not in line:
            thread = names.get(int(found["thread"]), "ended")
            calls[thread, found["name"]] += 1
    return calls


def _threads(pid: int) -> dict[int, str]:
    """Names of the threads; the first is `main`."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    names = {int(task.name): (task / "comm").read_text().strip() for task in tasks}
    return names | {pid: "main"}
