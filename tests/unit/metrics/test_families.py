# SPDX-License-Identifier: Apache-2.0
"""Names, units and bounds of every metric; the words are those of the code that counts."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import usbdra
from usbdra.agent.supervisor import Cause
from usbdra.errors import UsbdraError
from usbdra.kmod import ModuleState
from usbdra.metrics.families import (
    API_REASONS,
    INTERNAL,
    LOSSES,
    MODULE_STATES,
    MODULES,
    PARTS,
    PREPARE_PHASES,
    REASONS,
    UNPREPARE_PHASES,
    Family,
    Kind,
    phases,
)
from usbdra.nodesetup.state import HELPFUL, REQUIRED
from usbdra.plugin.acts import Step
from usbdra.state.claims import Phase

ALL = [pytest.param(f, id=f"{part}-{f.name}") for part, found in PARTS.items() for f in found]


def tree(kind: type[UsbdraError]) -> Iterator[type[UsbdraError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


def test_the_reasons_are_those_of_the_errors() -> None:
    for module in pkgutil.walk_packages(usbdra.__path__, "usbdra."):
        if not module.name.startswith(("usbdra.__main__", "usbdra._pb")):
            importlib.import_module(module.name)
    found = {kind.reason for kind in tree(UsbdraError) if kind.__module__.startswith("usbdra.")}
    assert {*REASONS, INTERNAL} == found
    assert set(API_REASONS) == {reason for reason in found if reason.startswith("Api")}


def test_phases_states_and_modules_are_those_of_the_code() -> None:
    steps = [step.value.partition(".") for step in Step]
    assert (*(s for a, _, s in steps if a == "prepare"), "total") == PREPARE_PHASES
    assert (*(s for a, _, s in steps if a == "unprepare"), "total") == UNPREPARE_PHASES
    assert tuple(cause.value for cause in Cause) == LOSSES
    assert (*REQUIRED, *HELPFUL) == MODULES
    assert tuple(state.value for state in ModuleState) == MODULE_STATES
    claims = next(f for f in PARTS["agent"] if f.name == "usbdra_claims")
    assert claims.labels[0].values == tuple(phase.value for phase in Phase)


@pytest.mark.parametrize("family", ALL)
def test_a_name_says_its_unit_and_kind(family: Family) -> None:
    assert family.name.startswith("usbdra_")
    assert family.name.endswith("_total") is (family.kind is Kind.COUNTER)
    if family.kind is Kind.HISTOGRAM:
        assert family.name.endswith("_seconds")
    assert "milli" not in family.name
    assert family.help.endswith(".")


@pytest.mark.parametrize("family", ALL)
def test_every_label_is_bounded(family: Family) -> None:
    for label in family.labels:
        assert bool(label.values) is not bool(label.bound), label


def test_milliseconds_become_seconds_of_known_phases() -> None:
    assert phases({"total": 1500.0, "odd": 1.0}, ("held", "total")) == {"total": 1.5}
