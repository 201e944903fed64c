# SPDX-License-Identifier: Apache-2.0
"""What a sampler saw of bench/flame/repeated.py, as stacks of Prepare alone. Pure.

Owns what belongs to Prepare and the words for it. A stack begins with its node and with the first
function of ours; before that is only how Python got there. Left out are starts and ends of the
processes, Unprepare, what waits, and the fake kernels, which are no part of any node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

PREPARE = "Preparer.prepare"
NODES = ("node b, which imports", "node a, which exports")
MAX_DEPTH = 26
LEAST = 0.004
"""Part of all samples below which a stack is cut until it has company."""

OURS, OURS_C, TLS, PYTHON, SYSTEM, OTHER = (
    "usbdra, Python",
    "usbdra, C",
    "OpenSSL",
    "libraries, Python",
    "system calls",
    "other C",
)
KINDS = (OURS, OURS_C, TLS, PYTHON, SYSTEM, OTHER)

_ROOTS = (
    PREPARE,
    "Dialler._make_ready",
    "KubeReporter.run",
    "RecordStore.save",
    "ClaimFiles.write",
    "ExporterServer._serve",
)
_NOT_PREPARE = ("Preparer.unprepare", "_find_and_load", "(tests/", "floor (")
_WRAPPERS = ("(usbdra/tracing/", "(usbdra/plugin/rooted.py")
"""Between a method and its own body, where traces are off; they would hide what calls what."""
_WAITING = re.compile(
    r"^(epoll_wait|wait4|PyThread_acquire_lock_timed|pthread_cond_\w*wait|sem_\w*wait) "
)
_FRAME = re.compile(r"(?P<name>.*) \((?P<where>[^()]*)\)")
_LIBRARY = re.compile(r"lib(ssl|crypto)\b|^_ssl|^_hashopenssl")
Stacks = Mapping[str, int]


def of_prepare(lines: Iterable[str]) -> dict[str, int]:
    """Samples by stack, frames from the outermost parted by `;`, each a kind and a name parted
    by `|`. lines: py-spy's `raw` form, `frame;frame;... COUNT`."""
    found: Counter[str] = Counter()
    for line in lines:
        frames, _, count = line.rpartition(" ")
        stack = _stack(frames.split(";"))
        if stack:
            found[";".join(stack)] += int(count)
    return dict(found)


def shares(stacks: Stacks) -> dict[str, float]:
    """The part of all samples that ends in each kind of code."""
    total = sum(stacks.values())
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        found[stack.rpartition(";")[2].partition("|")[0]] += count
    return {kind: found[kind] / total for kind in KINDS}


def _stack(frames: list[str]) -> list[str]:
    processes = [frame for frame in frames if frame.startswith("process ")]
    named = [frame for frame in frames if not frame.startswith("process ")]
    if any(word in frame for frame in named for word in _NOT_PREPARE):
        return []
    if any(_WAITING.match(frame) for frame in named[-3:]):
        return []
    start = next((at for at, frame in enumerate(named) if frame.startswith(_ROOTS)), None)
    if start is None:
        return []
    said: list[str] = []
    for frame in (_named(f) for f in named[start:] if not any(word in f for word in _WRAPPERS)):
        if not said or said[-1] != frame:
            said.append(frame)
    return [f"{OURS}|{NODES[len(processes) > 1]}", *said]


def _named(frame: str) -> str:
    match = _FRAME.fullmatch(frame)
    name, where = (match["name"], match["where"]) if match else (frame, "")
    where = re.sub(r":\d+$", "", where)
    kind = _kind(where)
    name = name.replace(".<locals>", "")
    if kind == OURS_C:
        where = where.partition(".")[0] + ".py"
    elif name.startswith("0x") or kind in (TLS, OTHER):
        name = where.partition(".so")[0] or name
    module = where.removesuffix(".py").removeprefix("usbdra/") if where.endswith(".py") else ""
    return f"{kind}|{name} ({module})" if module else f"{kind}|{name}"


def _kind(where: str) -> str:
    if where.startswith("usbdra/"):
        return OURS if where.endswith(".py") else OURS_C
    if _LIBRARY.search(where):
        return TLS
    if where.startswith("libc.so"):
        return SYSTEM
    return PYTHON if where.endswith((".py", ">")) else OTHER


def cut(stacks: Stacks) -> dict[str, int]:
    """Stacks of few samples are shortened until they are of many, or of their two first frames."""
    least = sum(stacks.values()) * LEAST
    kept: Counter[str] = Counter()
    for stack, count in stacks.items():
        kept[";".join(stack.split(";")[:MAX_DEPTH])] += count
    while True:
        small = {s: c for s, c in kept.items() if c < least and s.count(";") > 1}
        if not small:
            return dict(sorted(kept.items()))
        longest = max(stack.count(";") for stack in small)
        for stack, count in small.items():
            if stack.count(";") == longest:
                del kept[stack]
                kept[stack.rpartition(";")[0]] += count
