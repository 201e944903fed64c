# SPDX-License-Identifier: Apache-2.0
"""Modules and label of a node as metrics."""

from __future__ import annotations

from usbdra.kmod import Module, ModuleState
from usbdra.metrics.meters import Fact
from usbdra.nodesetup.metering import Metering, facts
from usbdra.nodesetup.state import Seen, Verdict

MODULES = (Module("usbip_core", ModuleState.LOADED), Module("vhci_hcd", ModuleState.MISSING))


def test_a_look_as_facts() -> None:
    verdict = Verdict(False, "ModulesMissing", "vhci_hcd is missing")
    found = facts(Seen(MODULES, verdict, labelled=True))
    assert Fact("usbdra_node_prepared", False) in found
    assert Fact("usbdra_node_labelled", True) in found
    held = [f.labels for f in found if f.value == 1 and len(f.labels) == 2]
    assert ("usbip_core", "loaded") in held
    assert ("vhci_hcd", "missing") in held
    assert Fact("usbdra_node_state", 1, ("ModulesMissing",)) in found
    assert Fact("usbdra_node_state", 0, ("ModulesLoaded",)) in found


def test_before_the_first_look_only_who_it_is() -> None:
    (only,) = facts(Seen())
    assert only.name == "usbdra_build_info"


async def test_without_a_port_nothing_listens() -> None:
    await Metering(None).serve(Seen)
