# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fakes.kernel import FakeKernel
from tests.fakes.tcp import TcpPair
from usbdra.vhci.driver import VhciDriver


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[FakeKernel]:
    async with FakeKernel(tmp_path) as fake:
        yield fake


@pytest.fixture
def driver(kernel: FakeKernel) -> VhciDriver:
    return VhciDriver(kernel.root, native=kernel.vhci, node="node-b")


@pytest.fixture
def link() -> Iterator[TcpPair]:
    with TcpPair() as pair:
        yield pair
