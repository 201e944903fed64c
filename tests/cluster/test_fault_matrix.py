# SPDX-License-Identifier: Apache-2.0
"""The cells of the fault matrix that `make test` has time for; all of them: `make faults`."""

from __future__ import annotations

from tests.bed.progress import say
from tests.cluster.bed import ClusterBed
from tests.cluster.matrix.run import Stage, run
from tests.cluster.matrix.table import QUICK


def test_faults_come_to_what_the_table_says(usb: ClusterBed) -> None:
    """One after another: what a cell needs takes longer to make than the cell itself."""
    with Stage(usb) as stage:
        for cell in QUICK:
            found = run(stage, cell)
            assert found.ok, found.problem
            say(f"{cell}: as it must be")
