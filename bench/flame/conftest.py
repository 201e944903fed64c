# SPDX-License-Identifier: Apache-2.0
"""The control plane and the claim of bench/cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cluster.conftest import claim, claims, plane

__all__ = ["claim", "claims", "plane"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.api)
            item.add_marker(pytest.mark.timeout(1800))
