# SPDX-License-Identifier: Apache-2.0
"""A fake broker behind a real listener on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.close()
