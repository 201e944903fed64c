# SPDX-License-Identifier: Apache-2.0
"""What is to be done about a node's modules and its label: pure.

Owns the decisions. A module that worked and went is not loaded again: somebody unloaded it, and
would have to fight us. One that never was there is tried again and again, for a package with
the kernel's extra modules may come at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from usbdra.kmod import Module, ModuleState

REQUIRED = ("usbip_core", "usbip_host", "vhci_hcd")
"""All of them, or no label."""
HELPFUL = ("tls", "inet_diag", "tcp_diag")
"""Encrypted links, and news of links that end: loaded where the kernel has them."""

_TRY = (ModuleState.LOADABLE, ModuleState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node as its modules make it."""

    ready: bool
    reason: str
    """ModulesLoaded, ModulesMissing, ModulesForbidden or ModulesUnloaded."""
    message: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found; nothing before the first one."""

    modules: tuple[Module, ...] = ()
    verdict: Verdict | None = None
    labelled: bool = False
    """The label says what is true."""

    def told(self) -> dict[str, object]:
        """For a dump."""
        verdict = {"reason": self.verdict.reason} if self.verdict else {}
        modules = {module.name: module.state.value for module in self.modules}
        return {**verdict, "labelled": self.labelled, "modules": modules}


@dataclass(slots=True)
class Memory:
    """What was seen since the start, and why loading failed last."""

    seen: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)

    def learn(self, modules: Sequence[Module]) -> None:
        """Take note of what works now."""
        for module in modules:
            if module.state.works:
                self.seen.add(module.name)
                self.failures.pop(module.name, None)


def to_load(modules: Sequence[Module], memory: Memory) -> list[str]:
    """Names to load now, in order of dependency."""
    return [m.name for m in modules if m.state in _TRY and m.name not in memory.seen]


def judge(modules: Sequence[Module], memory: Memory) -> Verdict:
    """Whether the node can import and export, and if not, why and what helps."""
    absent = [m for m in modules if m.name in REQUIRED and not m.state.works]
    if not absent:
        return Verdict(True, "ModulesLoaded", "usbip-core, usbip-host and vhci-hcd are there")
    gone = [m.name for m in absent if m.name in memory.seen]
    if gone:
        return Verdict(
            False,
            "ModulesUnloaded",
            f"{', '.join(gone)} was there and has been unloaded; load it again with modprobe, or "
            "restart this node's usbdra-node-setup pod",
        )
    banned = any(m.state is ModuleState.FORBIDDEN for m in absent)
    reason = "ModulesForbidden" if banned else "ModulesMissing"
    return Verdict(False, reason, "; ".join(_told(m, memory.failures) for m in absent))


def label_patch(labels: Mapping[str, str], key: str, ready: bool) -> dict[str, object] | None:
    """The JSON merge patch that makes the label true; None when it is."""
    wanted = "true" if ready else None
    if labels.get(key) == wanted:
        return None
    return {"metadata": {"labels": {key: wanted}}}


def _told(module: Module, failures: Mapping[str, str]) -> str:
    if module.name in failures:
        return failures[module.name]
    parts = [f"module {module.name}: {module.state.value}", module.detail, module.remedy]
    return ", ".join(part for part in parts if part)
