# SPDX-License-Identifier: Apache-2.0
"""Slices read back: the counterpart of slices/build.py, on what that really builds."""

from __future__ import annotations

import pytest

from tests.unit.controller.make import DRIVER, device, part
from tests.unit.slices.samples import offer
from usbdra.controller.published import (
    Reach,
    node_of,
    pool_devices,
    read_slice,
    status_attributes,
)
from usbdra.slices.build import SliceOptions, Visibility, build
from usbdra.types import Hub


@pytest.mark.parametrize(
    ("visibility", "reach"),
    [(Visibility.CLUSTER, Reach.CLUSTER), (Visibility.NODE, Reach.NODE)],
)
def test_what_a_node_publishes_is_read_back(visibility: Visibility, reach: Reach) -> None:
    sample = offer()
    options = SliceOptions(node="node-a", visibility=visibility)
    parts = [read_slice(item, DRIVER) for item in build([sample], {Hub.HIGH: 8}, options)]
    (found,) = [part for part in parts if part.devices]
    assert (found.pool, found.count) == ("usb-node-a", 1)
    (read,) = found.devices
    assert (read.name, read.node, read.reach, read.tie) == (sample.name, "node-a", reach, "node")
    shown = status_attributes(read)
    assert shown["vendorID"] == sample.device.vendor_id
    assert shown["bus"] == str(sample.device.busnum)
    bus, number = sample.device.busnum, sample.device.devnum
    assert shown["devicePath"] == f"/dev/bus/usb/{bus:03d}/{number:03d}"
    assert (shown["major"], shown["minor"]) == (189, (bus - 1) * 128 + number - 1)


def test_a_device_that_stays_local_says_so_and_links_are_no_devices() -> None:
    options = SliceOptions(node="a")
    parts = [
        read_slice(s, DRIVER) for s in build([offer(exportable=False)], {Hub.HIGH: 8}, options)
    ]
    assert {(p.pool, len(p.devices)) for p in parts} == {("usblocal-a", 1), ("usblink-a", 0)}
    assert [d.reach for p in parts for d in p.devices] == [Reach.LOCAL]
    assert node_of("usblink-a") is None
    assert node_of("usb-a.b") == "a.b"


def test_r53_only_the_newest_whole_generation_of_a_pool_counts() -> None:
    one, two = device(name="one"), device(name="two")
    old = part("a", one, generation=1)
    assert pool_devices([old]) == {"one": one}
    first = part("a", one, generation=2, count=2)
    assert pool_devices([old, first]) is None
    second = part("a", two, generation=2, count=2)
    assert pool_devices([old, first, second]) == {"one": one, "two": two}
    assert pool_devices([]) == {}


def test_a_device_without_numbers_has_no_path() -> None:
    bare = device(bus=None, deviceNumber=None, serial=None)
    assert not {"bus", "devicePath", "minor", "serial"} & status_attributes(bare).keys()
