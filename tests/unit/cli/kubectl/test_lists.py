# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb devices`, `claims` and `ports` in every form, and with --watch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.cli.kubectl.make import record
from tests.unit.controller.make import CONTRACT, DRIVER, STICK, claim
from tests.unit.slices.samples import offer
from usbdra.cli import invocation
from usbdra.cli.kubectl import lists
from usbdra.kube.errors import ApiForbidden
from usbdra.kube.types import RESOURCE_CLAIM, RESOURCE_SLICE
from usbdra.slices.build import SliceOptions, build
from usbdra.types import Hub

NUSB = CONTRACT.node_device


def test_names_are_what_kubectl_takes(usb: Cli, cluster: Cluster) -> None:
    cluster.put(NUSB, record())
    cluster.put(RESOURCE_CLAIM, claim("lab", "c", pods=("p",)))
    for item in build([offer()], {Hub.HIGH: 8}, SliceOptions(node="b")):
        cluster.put(RESOURCE_SLICE, item)
    assert usb("devices", "-o", "name").out == f"nodeusbdevice.{CONTRACT.group}/{STICK}\n"
    assert usb("claims", "-o", "name").out == "resourceclaim.resource.k8s.io/c\n"
    assert usb("ports", "-o", "name").out == "b/high\n"


@pytest.mark.parametrize("command", ["devices", "claims", "ports"])
def test_programs_get_a_list_also_of_nothing(usb: Cli, command: str) -> None:
    assert usb(command, "-o", "json").json == []
    assert usb(command, "-o", "yaml").out == "[]\n"
    assert usb(command, "-o", "wide").out.split()[0] in ("NAME", "NAMESPACE", "NODE")


@pytest.fixture
def acted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Things to do one after the other, one each time that something was printed; then Ctrl-C."""
    steps: list[Callable[[], Any]] = []

    def write(text: str) -> None:
        invocation.write(text)
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(lists, "write", write)
    return lambda *wanted: steps.extend(wanted)


def test_watch_shows_changes_of_devices_in_the_columns_of_before(
    usb: Cli, cluster: Cluster, acted: Callable[..., None]
) -> None:
    cluster.put(NUSB, record())
    acted(
        lambda: cluster.put(NUSB, record(Ready="NotFound")),
        lambda: cluster.drop(NUSB, STICK),
    )
    result = usb("devices", "-w")
    assert result.code == 130
    assert [line.split() for line in result.lines] == [
        ["NAME", "NODE", "READY", "ASSIGNED", "ATTACHED", "NAMESPACE"],
        [STICK, "a", "True", "True", "False", "lab"],
        [STICK, "a", "NotFound", "True", "False", "lab"],
        [STICK, "a", "Deleted", "True", "False", "lab"],
    ]


def test_watch_of_claims_tells_what_they_have_and_not_every_write(
    usb: Cli, cluster: Cluster, acted: Callable[..., None]
) -> None:
    def unchanged_then_given_back() -> None:
        again = claim("lab", "c", pods=("p",))
        again["metadata"]["annotations"] = {"x": "y"}
        cluster.put(RESOURCE_CLAIM, again)
        cluster.put(RESOURCE_CLAIM, {**again, "status": {}})

    acted(lambda: cluster.put(RESOURCE_CLAIM, claim("lab", "c", pods=("p",))))
    acted(unchanged_then_given_back)
    cluster.put(RESOURCE_CLAIM, claim("lab", "other"))
    result = usb("claims", "-w", "-o", "json")
    events = [json.loads(line) for line in result.lines]
    assert [(e["event"], e["object"]["claim"], e["object"]["pods"]) for e in events] == [
        ("added", "other", []),
        ("added", "c", ["p"]),
        ("removed", "c", ["p"]),
    ]


def test_watch_ends_where_the_api_says_no_and_has_no_yaml(usb: Cli, cluster: Cluster) -> None:
    assert usb("devices", "-w", "-o", "yaml").code == 2
    cluster.fail(ApiForbidden("list", 403, "Forbidden", "not for you"))
    result = usb("devices", "-w")
    assert (result.code, result.err) == (10, "usbdra: list: not for you\n")


def test_a_claim_of_another_driver_is_no_claim(usb: Cli, cluster: Cluster) -> None:
    other = claim("lab", "c")
    other["status"]["allocation"]["devices"]["results"][0]["driver"] = f"x{DRIVER}"
    cluster.put(RESOURCE_CLAIM, other)
    assert usb("claims", "-o", "json").json == []
