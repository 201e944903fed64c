# SPDX-License-Identifier: Apache-2.0
"""R68: what is loaded, when the label is there, and in which words the rest is told."""

from __future__ import annotations

import pytest

from usbdra.kmod import Module, ModuleState
from usbdra.nodesetup.state import Memory, judge, label_patch, to_load

KEY = "usb.example.com/usbip"


def modules(**states: ModuleState) -> list[Module]:
    """The three required modules; those not named work."""
    names = ("usbip_core", "usbip_host", "vhci_hcd")
    return [Module(n, states.get(n, ModuleState.LOADED), "why", "do this") for n in names]


def test_r68_all_there_loaded_or_built_in() -> None:
    verdict = judge(modules(vhci_hcd=ModuleState.BUILT_IN), Memory())
    assert (verdict.ready, verdict.reason) == (True, "ModulesLoaded")


@pytest.mark.parametrize("state", [ModuleState.LOADABLE, ModuleState.UNKNOWN])
def test_r68_what_may_load_is_loaded(state: ModuleState) -> None:
    assert to_load(modules(usbip_host=state), Memory()) == ["usbip_host"]


@pytest.mark.parametrize("state", [ModuleState.FORBIDDEN, ModuleState.MISSING])
def test_r68_what_cannot_load_is_not_tried(state: ModuleState) -> None:
    found = modules(vhci_hcd=state)
    assert to_load(found, Memory()) == []
    verdict = judge(found, Memory())
    assert not verdict.ready
    assert verdict.message == f"module vhci_hcd: {state.value}, why, do this"


def test_r68_a_ban_has_a_reason_of_its_own() -> None:
    assert judge(modules(vhci_hcd=ModuleState.FORBIDDEN), Memory()).reason == "ModulesForbidden"
    assert judge(modules(vhci_hcd=ModuleState.MISSING), Memory()).reason == "ModulesMissing"


def test_a_module_that_somebody_unloaded_stays_unloaded() -> None:
    memory = Memory()
    memory.learn(modules())
    gone = modules(vhci_hcd=ModuleState.LOADABLE)
    memory.learn(gone)
    assert to_load(gone, memory) == []
    verdict = judge(gone, memory)
    assert verdict.reason == "ModulesUnloaded"
    assert verdict.message.startswith("vhci_hcd was there and has been unloaded")


def test_the_last_failure_of_a_load_is_what_is_told() -> None:
    memory = Memory(failures={"vhci_hcd": "module vhci_hcd was not loaded: Key was rejected"})
    found = modules(vhci_hcd=ModuleState.LOADABLE)
    assert judge(found, memory).message == "module vhci_hcd was not loaded: Key was rejected"
    memory.learn(modules())
    assert memory.failures == {}


@pytest.mark.parametrize(
    ("labels", "ready", "patch"),
    [
        ({}, True, {"metadata": {"labels": {KEY: "true"}}}),
        ({KEY: "yes"}, True, {"metadata": {"labels": {KEY: "true"}}}),
        ({KEY: "true", "other": "x"}, True, None),
        ({KEY: "true"}, False, {"metadata": {"labels": {KEY: None}}}),
        ({"other": "x"}, False, None),
    ],
)
def test_the_label_is_there_only_while_all_modules_are(
    labels: dict[str, str], ready: bool, patch: object
) -> None:
    assert label_patch(labels, KEY, ready) == patch
