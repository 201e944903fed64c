# SPDX-License-Identifier: Apache-2.0
"""What the agent counts of what its parts tell, and who may ask it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.metrics.test_meters import values
from usbdra.agent import metering as module
from usbdra.agent.metering import Metering
from usbdra.agent.options import AgentOptions
from usbdra.agent.supervisor import Cause
from usbdra.types import NodeName

OPTIONS = AgentOptions(node=NodeName("a"), pod_uid="p", metrics=("127.0.0.1", 0))


async def counted(metering: Metering) -> dict[str, float]:
    """What is not zero."""
    assert metering._meters is not None
    return {name: n for name, n in (await values(metering._meters)).items() if n}


async def test_a_claim_that_was_prepared() -> None:
    metering = Metering(OPTIONS)
    metering.done("prepare", "ok", {"recorded": 3.0, "total": 40.0})
    found = await counted(metering)
    assert found["usbdra_prepares_total['ok']"] == 1
    assert found["usbdra_prepare_duration_seconds_sum['total']"] == 0.04
    assert found["usbdra_prepare_duration_seconds_count['recorded']"] == 1
    assert "usbdra_prepare_duration_seconds_count['held']" not in found


@pytest.mark.parametrize(
    ("took", "reached"),
    [({}, "begin"), ({"recorded": 1.0, "intended": 2.0, "total": 9}, "intended")],
)
async def test_a_claim_that_was_not(took: dict[str, float], reached: str) -> None:
    metering = Metering(OPTIONS)
    metering.done("prepare", "NoFreeUSBIPPort", took)
    found = await counted(metering)
    assert found["usbdra_prepares_total['NoFreeUSBIPPort']"] == 1
    assert found[f"usbdra_prepare_failures_total['{reached}']"] == 1
    assert not [name for name in found if "duration" in name]


async def test_a_claim_that_was_given_back() -> None:
    metering = Metering(OPTIONS)
    metering.done("unprepare", "ok", {"released": 8.0, "total": 9.0})
    metering.done("unprepare", "DetachStuck", {"releasing": 1.0, "total": 2.0})
    found = await counted(metering)
    assert found["usbdra_unprepares_total['ok']"] == 1
    assert found["usbdra_unprepares_total['DetachStuck']"] == 1
    assert found["usbdra_unprepare_duration_seconds_count['released']"] == 1


async def test_phases_of_another_nodes_invention_are_not_labels() -> None:
    metering = Metering(OPTIONS)
    metering.attached((("connect", 0.01), ("exporter.bind", 0.2), ("exporter.mine-1", 9.0)))
    found = await counted(metering)
    names = [name for name in found if name.startswith("usbdra_attach_duration_seconds_count")]
    assert [name.partition("[")[2] for name in names] == ["'connect']", "'exporter.bind']"]


async def test_losses_attempts_decisions_and_requests() -> None:
    metering = Metering(OPTIONS)
    metering.lost(Cause.LINK)
    metering.tried("Unreachable")
    metering.tried("ok")
    metering.decided("Busy")
    metering.answered("patch", "ApiConflict")
    found = await counted(metering)
    assert found["usbdra_losses_total['LinkEnded']"] == 1
    assert found["usbdra_reattachments_total['Unreachable']"] == 1
    assert found["usbdra_reattachments_total['ok']"] == 1
    assert found["usbdra_grants_total['Busy']"] == 1
    assert found["usbdra_api_requests_total['ApiConflict', 'patch']"] == 1


def test_without_an_address_nothing_is_kept() -> None:
    metering = Metering(replace(OPTIONS, metrics=None))
    metering.lost(Cause.DEVICE)
    metering.done("prepare", "ok", {})
    assert metering._meters is None


@pytest.mark.parametrize(
    ("address", "yes"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.7", False), ("node-a", False)],
)  # fmt: skip
def test_only_loopback_is_open_to_whoever_asks(address: str, yes: bool) -> None:
    assert module._is_loopback(address) is yes


def test_without_a_certificate_there_is_no_listener(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        module._context(lambda: tmp_path)
