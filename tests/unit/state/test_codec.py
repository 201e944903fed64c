# SPDX-License-Identifier: Apache-2.0
"""The strict JSON form of records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from usbdra.state.codec import decode, encode
from usbdra.types import BusId, Hub


@dataclass(frozen=True, slots=True)
class Inner:
    busid: BusId
    hub: Hub | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    count: int
    inner: tuple[Inner, ...]
    named: Mapping[str, Inner] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)
    flag: bool = False


FULL = Outer(
    3, (Inner(BusId("1-1"), Hub.HIGH),), {"a": Inner(BusId("2-1"))}, {"x": [1, {"y": None}]}, True
)


def test_round_trip() -> None:
    data = encode(FULL)
    assert data["inner"] == [{"busid": "1-1", "hub": "high"}]
    assert decode(Outer, data, "record") == FULL


def test_defaults_fill_what_is_left_out() -> None:
    assert decode(Outer, {"count": 1, "inner": []}, "record") == Outer(1, ())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"count": "3"}, "record.count is '3', not a whole number"),
        ({"count": True}, "record.count is True, not a whole number"),
        ({"flag": 1}, "record.flag is 1, not true or false"),
        ({"inner": {}}, "record.inner is {}, not a list"),
        ({"inner": [{"busid": 7}]}, "record.inner[0].busid is 7, not a text"),
        ({"inner": [{"busid": "1-1", "hub": "mid"}]}, "not one of high, super"),
        ({"inner": [{"busid": "1-1", "port": 1}]}, "record.inner[0] has an unknown field 'port'"),
        ({"inner": ["1-1"]}, "record.inner[0] is '1-1', not an object"),
        ({"named": []}, "record.named is [], not an object"),
        ({"named": {"a": {}}}, "record.named.a has no field 'busid'"),
        ({"count": None}, "record.count is None"),
        ({"free": "x" * 100}, "xxx..., not an object"),
    ],
)
def test_wrong_shapes_name_their_path(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        decode(Outer, {**encode(FULL), **change}, "record")


def test_top_level_must_be_an_object() -> None:
    with pytest.raises(ValueError, match="record is 5, not an object"):
        decode(Outer, 5, "record")
