# SPDX-License-Identifier: Apache-2.0
"""A broker of devices that do not exist, for the parts that stand before one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.close()
