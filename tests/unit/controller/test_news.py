# SPDX-License-Identifier: Apache-2.0
"""What is told as an Event: changes of reasons, each at one object."""

from __future__ import annotations

import pytest

from tests.unit.controller.make import CONTRACT, NOW
from usbdra.controller.acts import What
from usbdra.controller.news import News, changes, event

ABOUT = {"kind": "USBDevice", "name": "x", "namespace": "lab", "uid": "u"}


def condition(kind: str, reason: str) -> dict[str, str]:
    return {"type": kind, "reason": reason, "message": f"{reason} it is"}


@pytest.mark.parametrize(
    ("what", "told"),
    [(What.NODE_DEVICE, ["Assigned"]), (What.DEVICE, ["NotFound", "LinkLost"])],
)
def test_each_change_is_told_at_one_kind(what: What, told: list[str]) -> None:
    kinds = ("Ready", "Assigned", "Attached")
    old = {"conditions": [condition(kind, "Before") for kind in kinds]}
    new = [
        condition(k, r) for k, r in zip(kinds, ("NotFound", "Assigned", "LinkLost"), strict=True)
    ]
    assert [news.reason for news in changes(what, ABOUT, old, new)] == told
    assert changes(what, ABOUT, {"conditions": new}, new) == ()
    assert changes(what, ABOUT, {}, new) == ()


def test_an_event_names_its_object_and_is_where_the_api_wants_it() -> None:
    news = News(ABOUT, "LinkLost", "x" * 2000)
    body = event(news, "usbdra-1", NOW, CONTRACT.driver, "one")
    assert body["metadata"] == {"name": "usbdra-1", "namespace": "lab"}
    assert (body["type"], body["regarding"], len(body["note"])) == ("Warning", ABOUT, 1024)
    of_cluster = event(News({"kind": "NodeUSBDevice"}, "Assigned", "y"), "n", NOW, "d", "one")
    assert (of_cluster["metadata"]["namespace"], of_cluster["type"]) == ("default", "Normal")
