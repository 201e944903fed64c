# SPDX-License-Identifier: Apache-2.0
"""The cells of the fault matrix that `make test` has time for; all of them: `make faults`."""

from __future__ import annotations

import pytest

from tests.cluster.bed import ClusterBed
from tests.cluster.matrix.run import Stage, run
from tests.cluster.matrix.table import QUICK, Cell


@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_a_fault_comes_to_what_the_table_says(usb: ClusterBed, cell: Cell) -> None:
    with Stage(usb) as stage:
        found = run(stage, cell)
    assert found.ok, found.problem
