# SPDX-License-Identifier: Apache-2.0
"""Opaque parameters: strict, versioned, and no bad value ever becomes owner 0 or a wide mode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.errors import ConfigError
from usbdra.plugin.config import (
    DeviceConfig,
    Target,
    from_record,
    merge,
    to_record,
)
from usbdra.types import DeviceName, NodeName

DRIVER = "usb.virtualization.deckhouse.io"


def parameters(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"{DRIVER}/v1alpha1", "kind": "USBDeviceConfig", **fields}


def one(**fields: Any) -> DeviceConfig:
    return merge(DRIVER, [parameters(**fields)])


def test_defaults() -> None:
    config = merge(DRIVER, [])
    assert (config.uid, config.gid, config.mode) == (None, None, 0o660)
    assert config.kinds == {"tty", "hidraw", "video4linux", "sound"}
    assert config.host_drivers
    assert config.target is None


def test_every_field() -> None:
    config = one(
        owner={"uid": 107, "gid": 108, "mode": "0600"},
        childNodes=["tty", "block", "tty"],
        envPrefix="STICK",
        driver="none",
        device={"name": "usb-0951-1666-abc", "node": "node-a.example"},
    )
    assert config == DeviceConfig(
        107,
        108,
        0o600,
        ("tty", "block"),
        "STICK",
        False,
        Target(DeviceName("usb-0951-1666-abc"), NodeName("node-a.example")),
    )


def test_later_parameters_win_field_by_field() -> None:
    config = merge(
        DRIVER,
        [
            parameters(owner={"uid": 1, "gid": 2}, driver="none"),
            parameters(owner={"gid": 3}),
        ],
    )
    assert (config.uid, config.gid, config.host_drivers) == (1, 3, False)


def test_record_round_trip() -> None:
    config = one(owner={"uid": 5}, device={"name": "d", "node": "n"}, childNodes=[])
    assert from_record(to_record(config)) == config


@pytest.mark.parametrize("value", ["abc", "-1", -1, 4294967296, 4294967295, "", "107", None, True])
@pytest.mark.parametrize("name", ["uid", "gid"])
def test_r63_bad_owners_refuse_and_never_become_zero(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        one(owner={name: value})
    assert f"owner.{name} is {value!r}" in str(caught.value)


@pytest.mark.parametrize("value", ["0777", "4660", "rw", 660, 0o660, "", "0", "0060", None, "888"])
def test_r63_bad_modes_refuse(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        one(owner={"mode": value})
    assert f"owner.mode is {value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ([], "not an object"),
        ({"kind": "GpuConfig"}, "kind 'GpuConfig'"),
        ({"kind": "USBDeviceConfig", "apiVersion": f"{DRIVER}/v9"}, "v9'; this driver knows"),
        (parameters(colour="red"), "unknown field 'colour'"),
        (parameters(owner={"user": 1}), "USBDeviceConfig.owner has an unknown field 'user'"),
        (parameters(owner=[]), r"owner is \[\], not an object"),
        (parameters(childNodes="tty"), "childNodes is 'tty'"),
        (parameters(childNodes=["usb"]), "childNodes has 'usb'; known are tty"),
        (parameters(childNodes=[["tty"]]), "childNodes has"),
        (parameters(envPrefix="a-b"), "envPrefix is 'a-b'"),
        (parameters(driver="vfio"), "driver is 'vfio'"),
        (parameters(onReconnect="stay"), "onReconnect is 'stay'; use `relink`, `restartCont"),
        (parameters(device={"name": "d"}), "device.node is None"),
        (parameters(device={"name": "A/B", "node": "n"}), "device.name is 'A/B'"),
    ],
)
def test_refusals_name_the_field(item: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        merge(DRIVER, [item])


@given(
    st.dictionaries(
        st.sampled_from(
            ["owner", "childNodes", "envPrefix", "driver", "device", "onReconnect", "x"]
        ),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=6),
            lambda i: (
                st.lists(i, max_size=3)
                | st.dictionaries(st.sampled_from(["uid", "gid", "mode", "name", "node"]), i)
            ),
            max_leaves=5,
        ),
    )
)
@settings(max_examples=examples(200))
def test_anything_is_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        config = one(**fields)
    except ConfigError:
        return
    assert 0 < config.mode <= 0o666
    assert from_record(to_record(config)) == config
