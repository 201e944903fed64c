# SPDX-License-Identifier: Apache-2.0
"""`status.devices` of a claim."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from usbdra.errors import LinkError
from usbdra.plugin.config import DeviceConfig
from usbdra.plugin.status import device_statuses, not_ready, summary
from usbdra.state.claims import Route
from usbdra.types import ChildNode

from .records import TTY, device, held, record

NOW = datetime(2026, 3, 1, 12, 30, 5, 999, tzinfo=UTC)


def test_attached_device() -> None:
    one = record(device(held=held(children=(TTY,)), share_id="share-1"))
    assert device_statuses(one, NOW) == [
        {
            "pool": "usb-a",
            "device": "stick",
            "shareID": "share-1",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Attached",
                    "message": "stick of node a is attached to port 3 as 5-1",
                    "lastTransitionTime": "2026-03-01T12:30:05Z",
                }
            ],
            "data": {
                "name": "stick",
                "node": "a",
                "busID": "5-1",
                "bus": 5,
                "deviceNumber": 2,
                "path": "/dev/bus/usb/005/002",
                "vendorID": "0951",
                "productID": "1666",
                "childNodes": ["/dev/ttyACM3"],
                "serial": "STICK",
                "port": 3,
            },
        }
    ]


def test_local_and_observed_devices() -> None:
    one = record(
        device(route=Route.DIRECT, held=held(port=None)), device(route=Route.OBSERVE, held=None)
    )
    local, seen = device_statuses(one, NOW)
    assert local["conditions"][0]["reason"] == "Local"
    assert "port" not in local["data"]
    assert "shareID" not in local
    assert seen["conditions"][0]["reason"] == "Observed"
    assert seen["data"] == {"name": "stick", "node": "a"}
    assert summary(one) == (
        "stick is plugged into this node at 5-1; stick of node a is not on this node"
    )


def test_a_device_that_was_lost_is_told_from_one_that_never_came() -> None:
    one = record(device(held=None))
    (gone,) = device_statuses(one, NOW, {one.devices[0].key})
    assert gone["conditions"][0]["reason"] == "LinkLost"
    assert gone["data"] == {"name": "stick", "node": "a", "lost": True}
    (never,) = not_ready(one, LinkError("no answer"), NOW)
    assert never["conditions"][0]["reason"] == "LinkLost"
    assert never["data"] == {"name": "stick", "node": "a"}


def test_data_stays_below_ten_kibibytes() -> None:
    many = tuple(
        ChildNode("tty", f"/dev/a-rather-long-name-of-a-node-{n:060d}", 1, n, 0) for n in range(500)
    )
    config = DeviceConfig(child_nodes=("tty",))
    (status,) = device_statuses(record(device(config, held=held(children=many))), NOW)
    assert len(status["data"]["childNodes"]) == 64
    assert len(json.dumps(status["data"])) < 10 * 1024
