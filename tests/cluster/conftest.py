# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cluster tests: one bed for the whole run, logs kept when something failed.

For quick rounds leave a cluster running and let tests attach to it:

    python -m tests.cluster up --driver
    USBDRA_CLUSTER=running pytest tests/cluster/test_claims.py -k one_device
    python -m tests.cluster refresh        # after a change of usbdra/
    python -m tests.cluster kubectl get pods -A
    python -m tests.cluster run a dmesg
    python -m tests.cluster down

A test of the driver takes `space`, a namespace of its own (tests/cluster/space.py) on a cluster
with the driver installed, `gadgets` to plug devices in (gadgets.py), and `usb`, the cluster, for
all else: `usb.machine("a")`, `usb.nodes["b"].stop_kubelet()`, `usb.plane`, `usb.api`. Claims and
pods come from claims.py. At its end the namespace goes; then `nothing_left` waits until no node
holds more than before; then the devices are pulled out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.bed.progress import say, step
from tests.cluster import driver
from tests.cluster.api import ClusterApi
from tests.cluster.bed import ClusterBed, adopted, wanted
from tests.cluster.gadgets import Gadgets
from tests.cluster.leftovers import look_at, wait_clean
from tests.cluster.space import Space

HERE = Path(__file__).parent
collect_ignore = [] if os.environ.get(driver.MACHINES) else ["test_machines.py"]  # make machines
# The bed's own start counts into the first test; waits inside have shorter limits of their own.
TEST_SECONDS = 1500
# A kubelet looks at pods that are gone, and an agent at claims, some seconds later.
CLEAN_SECONDS = 60.0
_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is a cluster test with the bed's time limit."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that something failed: the logs are worth keeping then."""
    report = yield
    if report.failed:
        item.config.stash[_FAILED] = True
    return report


def logs_folder() -> Path:
    """Where the logs of a failed run go: `$USBDRA_LOGS`, else a folder for temporary files."""
    named = os.environ.get("USBDRA_LOGS")
    return Path(named or tempfile.gettempdir()) / f"usbdra-cluster-logs-{os.getpid()}"


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterBed]:
    """A cluster of two Ready nodes, a (kernel 6.12) and b (kernel 6.1)."""
    running = bool(wanted())
    logs = logs_folder()
    with adopted(logs) if running else ClusterBed(driver.spec(), logs) as bed:
        yield bed
        if request.config.stash.get(_FAILED, False):
            bed.collect(logs)
            say(f"logs are in {logs}")


@pytest.fixture(scope="session")
def api(cluster: ClusterBed) -> ClusterApi:
    """The cluster's API."""
    return cluster.api


@pytest.fixture(scope="session")
def usb(cluster: ClusterBed) -> ClusterBed:
    """The cluster with the driver installed by its chart's own values."""
    with step("installing the driver"):
        if driver.installed(cluster):
            driver.ready(cluster)
        else:
            driver.install(cluster)
    return cluster


@pytest.fixture
def gadgets(usb: ClusterBed) -> Iterator[Gadgets]:
    """Devices of this test; pulled out at its end."""
    devices = Gadgets(usb)
    yield devices
    devices.remove_all()


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose claims leave anything on a node. Its devices stay plugged until then."""
    if "usb" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("gadgets")
    bed: ClusterBed = request.getfixturevalue("usb")
    before = look_at(bed.bed.nodes)
    yield
    for machine in bed.bed.nodes.values():
        machine.vm.check()
    wait_clean(bed.bed.nodes, before, CLEAN_SECONDS)


@pytest.fixture
def space(usb: ClusterBed, nothing_left: None) -> Iterator[Space]:
    """A namespace of this test."""
    made = Space(usb.api)
    yield made
    made.remove()
