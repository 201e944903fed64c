# SPDX-License-Identifier: Apache-2.0
"""Parts of the chart on the control plane, without its workloads: rights, policies, classes.

Owns what it applied, and removes it. A test that needs a part asks for just that part, so that
tests of other parts are not ruled by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from tests.cluster.api import ClusterApi
from tests.cluster.driver import GROUP, NAMESPACE, render

__all__ = ["GROUP", "NAMESPACE", "installed", "manifests"]

Manifest = dict[str, Any]
WORKLOADS = frozenset({"DaemonSet", "Deployment", "Job", "Namespace"})


def manifests(values: Mapping[str, str] | None = None) -> list[Manifest]:
    """Every object of the chart."""
    return [item for item in yaml.safe_load_all(render(values)) if item]


@contextlib.contextmanager
def installed(
    api: ClusterApi,
    values: Mapping[str, str] | None = None,
    only: Callable[[Manifest], bool] = lambda _: True,
) -> Iterator[list[Manifest]]:
    """The chart's objects that `only` picks, but for workloads, and its namespace."""
    wanted = [m for m in manifests(values) if m["kind"] not in WORKLOADS and only(m)]
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api.apply(wanted, namespace=NAMESPACE)
    try:
        yield wanted
    finally:
        api.delete(wanted, namespace=NAMESPACE)
