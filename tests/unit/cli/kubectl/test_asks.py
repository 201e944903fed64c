# SPDX-License-Identifier: Apache-2.0
"""Reading what a claim asks for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.kubectl.make import by_cel, waiting
from tests.unit.controller.make import CONTRACT, DRIVER
from usbdra.cli.kubectl.asks import Ask, narrowed, read

A = f'device.attributes["{DRIVER}"]'


@pytest.mark.parametrize(
    ("text", "terms", "complete"),
    [
        (f'{A}.serial == "X"', {"serial": "X"}, True),
        (f"has({A}.serial) &&\n {A}.serial == 'X'", {"serial": "X"}, True),
        (f'device.driver == "{DRIVER}" && {A}.kind == "usb"', {"kind": "usb"}, True),
        (f'{A}.serial == "X" || true', {}, False),
        (f'{A}.serial.startsWith("X") && {A}.vendorID == "0951"', {"vendorID": "0951"}, False),
        (f'!({A}.serial == "X")', {}, False),
        ('device.attributes["other"].serial == "X"', {}, False),
        (f'{A}.serial == "a\\"b"', {}, False),
        ("x" * 5000, {}, False),
        ("", {}, False),
    ],
)
def test_equalities_are_understood_and_the_rest_is_known_to_be_there(
    text: str, terms: dict[str, str], complete: bool
) -> None:
    spec = by_cel(selectors=[{"cel": {"expression": text}}])
    (ask,) = read(waiting(spec), DRIVER)
    assert (ask.terms, ask.complete) == (terms, complete)


def test_alternatives_are_read_one_by_one() -> None:
    several = {"name": "link", "firstAvailable": [{"name": "a", "deviceClassName": "x"}]}
    spec = {"devices": {"requests": [*by_cel()["devices"]["requests"], several]}}
    assert [(a.request, a.device_class) for a in read(waiting(spec), DRIVER)] == [
        ("usb", CONTRACT.device_class("devices")),
        ("link/a", "x"),
    ]


def test_a_class_narrows_what_its_requests_ask_for() -> None:
    item = {"spec": {"selectors": [{"cel": {"expression": f'{A}.kind == "usb"'}}]}}
    full = narrowed(Ask("usb", "c", {"serial": "X"}), item, DRIVER)
    assert (full.terms, full.complete) == ({"kind": "usb", "serial": "X"}, True)
    vague = narrowed(full, {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}, DRIVER)
    assert not vague.complete


def test_a_device_is_compared_by_what_objects_say() -> None:
    ask = Ask("usb", "c", {"serial": "X", "interfaceClasses": "08"})
    assert ask.matches({"serial": "X"})
    assert not ask.matches({"serial": "Y"})
    assert not ask.matches({})


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "good"),
    [
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations_as_the_scheduler_takes_them(toleration: dict[str, Any], good: bool) -> None:
    assert Ask("usb", "c", tolerations=(toleration,)).tolerates(TAINT) is good
