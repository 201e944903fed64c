# SPDX-License-Identifier: Apache-2.0
"""What draining a node, or a host outside the cluster, of USB devices means for the API. Pure.

Owns the DeviceTaintRules of a drain (KEP 5055), one for each pool of the node, and which claims
stand in its way. A host stands where a node does, as `outside/HOST`, and has one pool. The rules
are all there is to know that a node is drained: nothing of it is in our own objects, and the
control plane does the evicting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.controller.uses import consumers, results
from usbdra.kube.custom import MANAGED_BY, Contract
from usbdra.types import outside_host

Object = Mapping[str, Any]

POOLS = {"usb": "exports", "usblocal": "local", "usblink": "imports"}
"""Prefixes of a node's pools (slices/build.py) and what their devices are to the node."""
EXPORTS, IMPORTS = ("usb", "usblocal"), ("usblink",)
"""What is ended first: those that use the node's devices. Then what the node has of others."""


def place(node: str) -> str:
    """What is drained, in words."""
    host = outside_host(node)
    return f"node {node}" if host is None else f"host {host}"


def steps(node: str) -> dict[str, tuple[str, ...]]:
    """What is ended, in order: in words, and its pools."""
    if outside_host(node) is not None:
        return {"devices of this host": ("usb",)}
    return {"devices of this node": EXPORTS, "ports of this node": IMPORTS}


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that has something of a drained node, and the pods it is reserved for."""

    namespace: str
    claim: str
    pods: tuple[str, ...]

    def __str__(self) -> str:
        users = f" ({', '.join(self.pods)})" if self.pods else ""
        return f"{self.namespace}/{self.claim}{users}"


def rule_name(driver: str, prefix: str, node: str) -> str:
    """The name of a rule; node names and drivers are DNS subdomains, and so is this. A host's is
    another than any node's."""
    host = outside_host(node)
    whose = f".{node}" if host is None else f"-outside.{host}"
    return f"{prefix}{whose}.drain.{driver}"[:253].rstrip(".-")


def rules(
    contract: Contract, node: str, prefixes: Iterable[str], effect: str
) -> list[dict[str, Any]]:
    """The rules that put a taint of this effect on everything in these pools of the node."""
    return [
        {
            "metadata": {
                "name": rule_name(contract.driver, prefix, node),
                "labels": {MANAGED_BY: contract.driver, contract.key("drain"): POOLS[prefix]},
            },
            "spec": {
                "deviceSelector": {"driver": contract.driver, "pool": f"{prefix}-{node}"},
                "taint": {"key": contract.key("drain"), "value": "", "effect": effect},
            },
        }
        for prefix in prefixes
    ]


def held(
    claims: Iterable[Object], driver: str, node: str, prefixes: Iterable[str]
) -> Iterator[Held]:
    """The claims that were allocated something in these pools of the node, in name order."""
    pools = {f"{prefix}-{node}" for prefix in prefixes}
    for claim in sorted(claims, key=_full_name):
        if any(result.get("pool") in pools for result in results(claim, driver)):
            pods = tuple(pod.name for pod in consumers(claim))
            yield Held(*_full_name(claim), pods)


def drained(rules: Iterable[Object], driver: str) -> dict[str, tuple[Object, ...]]:
    """The taints that rules put on whole pools of ours, by pool; whoever made them."""
    found: dict[str, tuple[Object, ...]] = {}
    for rule in rules:
        spec = rule.get("spec") or {}
        selector = spec.get("deviceSelector") or {}
        pool, taint = selector.get("pool"), spec.get("taint")
        if selector.get("driver") == driver and pool and taint and not selector.get("device"):
            found[pool] = (*found.get(pool, ()), taint)
    return found


def _full_name(claim: Object) -> tuple[str, str]:
    return claim["metadata"].get("namespace", ""), claim["metadata"]["name"]
