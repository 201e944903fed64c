# SPDX-License-Identifier: Apache-2.0
"""What a claim that is gone must not leave on a node, read from outside the product.

Owns the reading and the wait for a node to be clean; when to look is the fixtures'.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from tests.bed.node import Node
from tests.cluster.controlplane import API_PORT

AGENT = "usbdra agent --group"
_LOOK_SECONDS = 0.3
_KEYLOG = "/memfd:usbdra-keylog (deleted)"
_KEPT_KEYLOGS = 4
"""An agent keeps what it needs for links from its first one on: a context for each role, whose key
log is memory that is open twice, by us and by OpenSSL."""
# Ports that are not free; devices at usbip-host and their entries in its table; our files; the
# agent's descriptors. In the table only entries of devices that are there count: no one can free
# the others (docs/kernel-facts.md). "KIND NAME" a line.
_SCRIPT = rf"""
cd /sys/bus/usb/drivers/usbip-host
for f in *-*; do [ -e "$f" ] && echo "bound $f"; done
for f in $(tr ' ' '\n' <match_busid); do [ -e /sys/bus/usb/devices/$f ] && echo "matched $f"; done
cat /sys/devices/platform/vhci_hcd.0/status* | grep -E '^(hs|ss)' |
while read -r hub port state rest; do [ $state = 004 ] || echo "port $port"; done
ls /var/run/cdi 2>/dev/null | sed 's/^/cdi /'
ls /var/lib/usbdra/claims 2>/dev/null | sed 's/^/record /'
ls /dev/usbdra 2>/dev/null | sed 's/^/directory /'
ls /run/usbdra/exports 2>/dev/null | sed 's/^/export /'
for pid in $(pgrep -f '[u]{AGENT[1:]}'); do
  echo "agent $pid"
  ls -l /proc/$pid/fd | sed -n 's/.* -> /fd /p'
done
sed 's/^ */tcp /' /proc/net/tcp /proc/net/tcp6
true
"""


@dataclass(frozen=True)
class State:
    """What one node holds for claims, as "KIND NAME", and its agent's pids and descriptors."""

    held: frozenset[str]
    agents: frozenset[str]
    descriptors: Counter[str] = field(default_factory=Counter)


def look_at(nodes: Mapping[str, Node]) -> dict[str, State]:
    """The state of all nodes, read at the same time."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip(nodes, pool.map(look, nodes.values()), strict=True))


def look(node: Node) -> State:
    """Read a node's state in one call."""
    lines = [line.partition(" ") for line in node.sh(_SCRIPT).splitlines()]
    told: dict[str, list[str]] = defaultdict(list)
    for kind, _, value in lines:
        told[kind].append(value)
    agents, descriptors, tcp = told.pop("agent", []), told.pop("fd", []), told.pop("tcp", [])
    pooled = {f"socket:[{inode}]" for inode in _to_api_server(tcp)}
    names = Counter(fd.partition("[")[0] for fd in descriptors if fd not in pooled)
    names[_KEYLOG] = max(names[_KEYLOG] - _KEPT_KEYLOGS, 0)
    return State(
        held=frozenset(f"{kind} {value}" for kind, values in told.items() for value in values),
        agents=frozenset(agents),
        # sockets and pipes have numbers of their own: how many there are is what matters
        descriptors=names,
    )


def _to_api_server(rows: Iterable[str]) -> Iterator[str]:
    """Inodes of connections that clients of the API keep for their next request (proc(5))."""
    for row in rows:
        fields = row.split()
        if fields[2].endswith(f":{API_PORT:04X}"):
            yield fields[9]


def remains(before: State, now: State) -> list[str]:
    """What is there now and was not before; descriptors only of an agent that is the same."""
    found = sorted(now.held - before.held)
    same = now.agents == before.agents
    if same and now.descriptors.total() > before.descriptors.total():
        more = now.descriptors - before.descriptors
        found += [f"{count} x {what} open" for what, count in more.items()]
    return found


def but_place(before: Mapping[str, State], name: str, busid: str) -> dict[str, State]:
    """`before`, where a node may keep a device's place in usbip-host's table.

    A device that is pulled while usbip-host has it leaves it behind, and nobody can empty it before
    that device's next release (docs/kernel-facts.md).
    """
    was = before[name]
    return {**before, name: replace(was, held=was.held | {f"matched {busid}"})}


def wait_clean(nodes: Mapping[str, Node], before: Mapping[str, State], seconds: float) -> None:
    """Wait until no node holds more than before; nothing announces that, so it is looked at.

    Raises:
        AssertionError: with all that is left.
    """
    deadline = time.monotonic() + seconds
    while True:
        now = look_at(nodes)
        left = [f"{name}: {one}" for name in nodes for one in remains(before[name], now[name])]
        if not left:
            return
        assert time.monotonic() < deadline, f"left after {seconds:g} s: {', '.join(left)}"
        time.sleep(_LOOK_SECONDS)
