# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb top`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.controller.make import DRIVER, STICK, claim
from usbdra.agent.linkrates import Numbers
from usbdra.cli.kubectl import links
from usbdra.controller.links import read
from usbdra.kube.types import RESOURCE_CLAIM

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def linked(name: str, sent: int, received: int, rtt: int = 1234) -> dict[str, Any]:
    """A claim of a pod on node b, with what its agent told of its link."""
    item = claim("lab", name, pods=("p",), ready=True)
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    item["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    told = Numbers(sent, received, rtt, 2, 60).data(NOW)
    item["status"]["devices"][0]["data"] = {"name": STICK, "node": "a", "link": told}
    return item


def test_links_are_shown_the_busiest_first(usb: Cli, cluster: Cluster) -> None:
    cluster.put(RESOURCE_CLAIM, linked("slow", 0, 900))
    cluster.put(RESOURCE_CLAIM, linked("fast", 1_500_000, 31_000_000))
    cluster.put(RESOURCE_CLAIM, claim("lab", "local", ready=True))
    rows = [line.split() for line in usb("top", "-o", "wide").lines]
    assert rows[0] == [*links.HEADERS, *links.WIDE]
    assert [row[1:8] for row in rows[1:]] == [
        ["fast", STICK, "a", "b", "31.0MB/s", "1.5MB/s", "1.2ms"],
        ["slow", STICK, "a", "b", "900B/s", "0B/s", "1.2ms"],
    ]
    assert rows[1][9:] == ["2", "60s", "no"]
    (fast, _) = usb("top", "-o", "json").json
    assert fast == {
        "namespace": "lab", "claim": "fast", "device": STICK, "from": "a", "to": "b",
        "receivedBytesPerSecond": 31_000_000, "sentBytesPerSecond": 1_500_000,
        "rttMicroseconds": 1234, "retransmits": 2, "seconds": 60, "time": "2026-01-31T12:00:00Z",
        "encrypted": False,
    }  # fmt: skip
    assert usb("top", "-o", "name").lines[0] == "resourceclaim.resource.k8s.io/fast"


@pytest.mark.parametrize(
    "link", [None, "text", {}, {"sentBytesPerSecond": "1"}, {"sentBytesPerSecond": 1}]
)
def test_what_is_not_understood_is_left_out(link: object) -> None:
    item = linked("odd", 1, 1)
    item["status"]["devices"][0]["data"]["link"] = link
    assert read([item], DRIVER) == []
    item["status"]["devices"][0]["data"] = None
    assert read([item], DRIVER) == []


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0B/s"),
        (999, "999B/s"),
        (1000, "1.0kB/s"),
        (99_600, "100kB/s"),
        (999_400, "999kB/s"),
        (999_600, "1.0MB/s"),
        (2_500_000_000, "2.5GB/s"),
        (10**13, "10000GB/s"),
    ],
)
def test_rates_are_short(rate: int, text: str) -> None:
    (link,) = read([linked("c", rate, 0)], DRIVER)
    assert links.row(link, NOW, False)[6] == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (59, "59s"), (130, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_ages_are_kubectls(seconds: int, text: str) -> None:
    (link,) = read([linked("c", 1, 0)], DRIVER)
    assert links.row(link, NOW + timedelta(seconds=seconds), False)[8] == text
