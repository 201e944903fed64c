# SPDX-License-Identifier: Apache-2.0
"""What an agent tells of devices that come and go, and of claims in its dump."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.test_ports import COUNTED, Claims, counter
from tests.unit.plugin.records import device, held, record
from tests.unit.slices.samples import offer
from usbdra.agent import telling
from usbdra.agent.facts import Parts
from usbdra.discovery.live import Change
from usbdra.dumping import StateDump
from usbdra.state.claims import ClaimRecord
from usbdra.types import Endpoints

LINK = Endpoints("10.0.0.2", 50000, "10.0.0.1", 3241)


def snapshot(*offers: Any) -> Any:
    class Seen:
        def __init__(self) -> None:
            self.offers = offers

    return Seen()


def parts(*records: ClaimRecord) -> Parts:
    return Parts(
        ready=lambda: True, snapshot=lambda: snapshot(offer()), ports=counter(Claims(COUNTED), 0),
        records=lambda: records, restoring=lambda: 2, holders=lambda: {"1-1": "claim lab/one"},
        queued=lambda: 3, links=dict, slices=lambda: None, pki=Path,
    )  # fmt: skip


def test_the_dump_has_claims_devices_ports_sessions_and_queues() -> None:
    linked = record(device(held=replace(held(port=0), link=LINK)))
    dump = StateDump()
    telling.follow(dump, parts(replace(linked, error="stuck")))
    state: Any = dump.read()
    (claim,) = state["claims"].values()
    assert (claim["claim"], claim["error"]) == (str(linked.ref), "stuck")
    (told,) = claim["devices"]
    assert told["link"] == "10.0.0.2:50000-10.0.0.1:3241"
    assert (told["device"], told["port"]) == (linked.devices[0].name, 0)
    assert state["ports"] == {"high claims": 1, "high free": 3, "super free": 4}
    assert state["sessions"] == {"1-1": "claim lab/one"}
    assert (state["agent"]["restoring"], state["agent"]["queued_reports"]) == (2, 3)
    assert state["devices"][offer().name]["offer"] == "cluster"


def test_a_line_for_each_device_that_comes_or_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    telling.tell(Change(snapshot(), snapshot(offer())))
    telling.tell(Change(snapshot(offer()), snapshot(offer())))
    telling.tell(Change(snapshot(offer()), snapshot()))
    assert [one.message for one in caplog.records] == ["device plugged in", "device pulled"]
    assert vars(caplog.records[0])["device"] == offer().name
