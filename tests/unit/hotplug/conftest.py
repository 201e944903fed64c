# SPDX-License-Identifier: Apache-2.0
"""A fake QEMU at a socket, where a kubelet would have it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.qemu import FakeQemu

POD = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The emptyDir `run` of pod POD below the kubelet's directory, which is tmp_path."""
    made = tmp_path / "pods" / POD / "volumes/kubernetes.io~empty-dir/run"
    made.mkdir(parents=True)
    return made


@pytest.fixture
async def fake(volume: Path) -> AsyncIterator[FakeQemu]:
    one = FakeQemu(volume / "q")
    await one.start()
    yield one
    await one.kill()
