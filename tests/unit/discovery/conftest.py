# SPDX-License-Identifier: Apache-2.0
"""A made-up machine with one controller: `tree`, its high-speed root hub `hs` (bus 1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.sysfs import FakeDevice, SysTree


@pytest.fixture
def tree(tmp_path: Path) -> SysTree:
    return SysTree(tmp_path)


@pytest.fixture
def hs(tree: SysTree) -> FakeDevice:
    return tree.controller("0000:00:14.0").root_hub(bus=1)
