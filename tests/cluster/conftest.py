# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cluster tests: one bed for the whole run, logs kept when something failed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.bed.progress import say
from tests.cluster.api import ClusterApi
from tests.cluster.bed import ClusterBed

HERE = Path(__file__).parent
# The bed's own start counts into the first test; waits inside have shorter limits of their own.
TEST_SECONDS = 1500
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
    with ClusterBed(logs=logs_folder()) as bed:
        yield bed
        if request.config.stash.get(_FAILED, False):
            bed.collect(logs_folder())
            say(f"logs are in {logs_folder()}")


@pytest.fixture(scope="session")
def api(cluster: ClusterBed) -> ClusterApi:
    """The cluster's API."""
    return cluster.api
