# SPDX-License-Identifier: Apache-2.0
"""Worlds that several contract tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.exporting import World, running


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as one:
        yield one
