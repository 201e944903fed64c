# SPDX-License-Identifier: Apache-2.0
"""Rows of `kubectl usb`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.kubectl.make import record
from tests.unit.controller.make import DRIVER, STICK, claim
from tests.unit.slices.samples import offer
from usbdra.cli.kubectl import views
from usbdra.controller.hubs import hubs
from usbdra.controller.uses import uses
from usbdra.slices.build import Layout, SliceOptions, build
from usbdra.types import Hub


def test_a_devices_row_shows_a_reason_where_it_says_more_than_the_status() -> None:
    assert views.device_row(record(), False) == [STICK, "a", "True", "True", "False", "lab"]
    row = views.device_row(record(Ready="NotFound", Attached="LinkLost"), True)
    assert row[2:5] == ["NotFound", "True", "LinkLost"]
    assert row[-2:] == ["480", "NotFound it is"]
    bare: dict[str, Any] = {"metadata": {"name": "x"}}
    assert views.device_row(bare, True) == ["x", *[""] * 10]


@pytest.mark.parametrize(
    ("report", "state"),
    [({}, "Allocated"), ({"ready": True}, "Attached"), ({"ready": False, "reason": "X"}, "X")],
)
def test_a_claims_row(report: dict[str, Any], state: str) -> None:
    (use,) = uses(claim("lab", "c", pods=("q", "p"), **report), DRIVER)
    assert views.claim_row(use, False) == ["lab", "c", STICK, "a", state, "p,q"]


@pytest.mark.parametrize("layout", list(Layout))
def test_ports_are_counted_in_both_layouts_of_slices(layout: Layout) -> None:
    options = SliceOptions(node="b", layout=layout)
    slices = build([offer()], {Hub.HIGH: 3, Hub.SUPER: 2}, options)
    port = "vhci-high" if layout is Layout.HUB else "vhci-high-0"
    taken = claim("lab", "c")
    taken["status"]["allocation"]["devices"]["results"].append(
        {"request": "link/vhci", "driver": DRIVER, "pool": "usblink-b", "device": port}
    )
    high, fast = hubs(slices, [taken], DRIVER)
    assert views.port_row(high) == ["b", "high", "1", "2", "lab/c"]
    assert views.port_data(fast) == {
        "node": "b", "hub": "super", "capacity": 2, "used": 0, "free": 2, "claims": [],
    }  # fmt: skip
