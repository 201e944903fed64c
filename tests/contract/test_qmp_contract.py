# SPDX-License-Identifier: Apache-2.0
"""QMP conversations on the fake QEMU; tests/kernel runs the same bodies on a real one."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract import qmp_bodies
from tests.fakes.qemu import FakeQemu


@pytest.fixture
async def path() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeQemu(Path(folder, "q"), no_devices={"/dev/null"})
        await fake.start()
        yield fake.path
        await fake.kill()


@pytest.mark.parametrize("body", qmp_bodies.BODIES, ids=lambda body: body.__name__)
async def test_promise(path: Path, body: qmp_bodies.Body) -> None:
    await body(path)
