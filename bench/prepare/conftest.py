# SPDX-License-Identifier: Apache-2.0
"""A cluster with the driver, sticks in node a, and the times of their claims on node b.

USBDRA_CLUSTER=running uses one that was left running, as the cluster tests do. BENCH_ROUNDS sets
the rounds of one claim, a tenth of them are made of 16.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.prepare.claims import Allocated
from tests.cluster import driver
from tests.cluster.bed import ClusterBed, adopted, wanted
from tests.cluster.gadgets import Gadgets

HERE = Path(__file__).parent
IMPORTER = "b"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))
AT_ONCE = 16
PAUSE = 2.0
LOGS = Path("build/results/bench-cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1800))


@dataclass
class Measured:
    """By the caller's clock, seconds of each claim of each round; and what the agent logged."""

    prepare: list[float] = field(default_factory=list)
    unprepare: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)
    prepared: list[dict[str, float]] = field(default_factory=list)
    attached: list[dict[str, float]] = field(default_factory=list)
    given_back: list[dict[str, float]] = field(default_factory=list)


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterBed]:
    """Nodes a (exports) and b (imports) with the driver."""
    running = bool(wanted())
    with adopted(LOGS) if running else ClusterBed(driver.spec(), LOGS) as bed:
        if not driver.installed(bed):
            driver.install(bed)
        yield bed


@pytest.fixture(scope="session")
def sticks(cluster: ClusterBed) -> Iterator[list[dict[str, Any]]]:
    """So many sticks in node a, as published. The bed's nodes come with fewer places for them."""
    machine = cluster.machine("a")
    before = machine.sh("cat /sys/module/dummy_hcd/parameters/num").strip()
    machine.sh(f"modprobe -r dummy_hcd && modprobe dummy_hcd num={AT_ONCE} is_super_speed=1")
    gadgets = Gadgets(cluster)
    try:
        serials = [f"BENCH{index:04d}" for index in range(AT_ONCE)]
        for number, serial in enumerate(serials):
            gadgets.plug("a", serial, speed=("high", "super")[number % 2])  # 8 ports of each
        yield [gadgets.published(serial) for serial in serials]
    finally:
        gadgets.remove_all()
        machine.sh(f"modprobe -r dummy_hcd && modprobe dummy_hcd num={before} is_super_speed=1")


@pytest.fixture(scope="session")
def claims(cluster: ClusterBed, sticks: list[dict[str, Any]]) -> Iterator[list[dict[str, str]]]:
    """An allocated claim for each stick."""
    allocated = Allocated(cluster.api, IMPORTER)
    try:
        yield allocated.make(sticks)
    finally:
        allocated.remove()


@pytest.fixture(scope="session")
def one(cluster: ClusterBed, claims: list[dict[str, str]]) -> Measured:
    """One claim at a time; the first round is a warm-up."""
    return measure(cluster, claims[:1], ROUNDS)


@pytest.fixture(scope="session")
def sixteen(cluster: ClusterBed, claims: list[dict[str, str]], one: Measured) -> Measured:
    """All claims at once."""
    return measure(cluster, claims, max(ROUNDS // 10, 2))


def measure(cluster: ClusterBed, claims: list[dict[str, str]], rounds: int) -> Measured:
    """Rounds of guest_kubelet.py in the agent's container, without the first."""
    pod = agent_pod(cluster)
    order = {"rounds": rounds + 1, "pause": PAUSE, "claims": claims}
    script = (HERE / "guest_kubelet.py").read_text()
    command = ("python3", "-c", script, json.dumps(order))
    said = cluster.api.execute(pod, *command, namespace=driver.NAMESPACE, timeout=1200)
    found = Measured()
    for sample in json.loads(said.splitlines()[-1])[1:]:
        found.prepare += sample["prepare"]
        found.unprepare += sample["unprepare"]
        found.both.append(sample["both"])
    names = {f"{claim['namespace']}/{claim['name']}" for claim in claims}
    lines = cluster.api.kubectl("logs", f"--namespace={driver.NAMESPACE}", pod, "-c", "agent")
    for line in lines.splitlines():
        if "took_ms" in line and any(name in line for name in names):
            keep(found, json.loads(line))
    for series in (found.prepared, found.attached, found.given_back):
        del series[: -rounds * len(claims)]
    return found


def keep(found: Measured, entry: dict[str, Any]) -> None:
    """Sort one line of the agent's log in."""
    series = {
        "claim prepared": found.prepared,
        "device attached": found.attached,
        "claim given back": found.given_back,
    }.get(entry["message"])
    if series is not None:
        series.append(entry["took_ms"])


def agent_pod(cluster: ClusterBed) -> str:
    """The running agent of the importer."""
    pods = cluster.api.core.list_namespaced_pod(
        driver.NAMESPACE,
        label_selector="app.kubernetes.io/component=agent",
        field_selector=f"spec.nodeName={IMPORTER},status.phase=Running",
    ).items
    (name,) = [pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None]
    return str(name)
