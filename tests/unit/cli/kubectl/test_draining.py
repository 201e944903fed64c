# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb drain` and `undrain`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.cli.kubectl.make import by_cel, facts, node, record, waiting
from tests.unit.controller.make import CONTRACT, DRIVER, STICK, claim
from usbdra.cli.kubectl import draining, drains
from usbdra.cli.kubectl.explain import explain_claim
from usbdra.cli.kubectl.known import published
from usbdra.kube import errors
from usbdra.kube.types import DEVICE_TAINT_RULE, NODE, RESOURCE_CLAIM, Kind


@pytest.fixture
def evicting(cluster: Cluster) -> list[tuple[str, str]]:
    """A control plane that takes a claim back for each NoExecute; (pool, effect) as written."""
    written: list[tuple[str, str]] = []
    cluster.put(NODE, node("a"))
    cluster.put(RESOURCE_CLAIM, claim("lab", "far", pods=("reader",)))
    ports = claim("lab", "near", node="b", pods=("p",))
    devices = ports["status"]["allocation"]["devices"]
    devices["results"].append({**devices["results"][0], "pool": "usblink-a", "device": "vhci-high"})
    cluster.put(RESOURCE_CLAIM, ports)
    cluster.put(RESOURCE_CLAIM, claim("lab", "other", node="c", pods=("q",)))

    def evict(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if kind != DEVICE_TAINT_RULE or verb != "apply":
            return
        spec = item["spec"]
        pool, effect = spec["deviceSelector"]["pool"], spec["taint"]["effect"]
        written.append((pool, effect))
        name = {"usb-a": "far", "usblink-a": "near"}.get(pool)
        if name and effect == "NoExecute":
            cluster.put(RESOURCE_CLAIM, {"metadata": {"namespace": "lab", "name": name}})

    cluster.after_write = evict
    return written


def test_drain_ends_what_uses_the_nodes_devices_and_then_what_the_node_uses(
    usb: Cli, cluster: Cluster, evicting: list[tuple[str, str]]
) -> None:
    result = usb("drain", "a")
    assert result.code == 0
    assert result.out == "node a: drained; kubectl usb undrain a lets it be used again\n"
    assert evicting == [
        ("usb-a", "NoSchedule"),
        ("usblocal-a", "NoSchedule"),
        ("usblink-a", "NoSchedule"),
        ("usb-a", "NoExecute"),
        ("usblocal-a", "NoExecute"),
        ("usblink-a", "NoExecute"),
    ]
    rules = cluster.all(DEVICE_TAINT_RULE)
    assert {rule["spec"]["taint"]["key"] for rule in rules} == {CONTRACT.key("drain")}
    assert {rule["spec"]["deviceSelector"]["driver"] for rule in rules} == {DRIVER}
    result = usb("undrain", "a")
    assert (result.code, result.out) == (0, "node a: in use again\n")
    assert cluster.all(DEVICE_TAINT_RULE) == []
    assert usb("undrain", "a").code == 0


def test_a_drain_that_is_not_done_in_time_says_who_is_left(
    usb: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(NODE, node("a"))
    cluster.put(RESOURCE_CLAIM, claim("lab", "far", pods=("reader",)))
    result = usb("drain", "a", "--timeout", "1")
    assert result.code == 1
    assert result.out == "node a: not done in 1 s: lab/far (reader); the drain goes on\n"
    assert "node a: devices of this node: 1 claims have them: lab/far (reader)" in result.err


@pytest.mark.parametrize("word", ["pi", "outside/pi"])
def test_a_host_outside_gives_up_its_devices(usb: Cli, cluster: Cluster, word: str) -> None:
    cluster.put(CONTRACT.host, {"metadata": {"name": "pi"}, "spec": {"address": "192.0.2.7"}})
    cluster.put(RESOURCE_CLAIM, claim("lab", "far", node="outside/pi", pods=("reader",)))
    written: list[tuple[str, str]] = []

    def evict(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if kind == DEVICE_TAINT_RULE and verb == "apply":
            effect = item["spec"]["taint"]["effect"]
            written.append((item["spec"]["deviceSelector"]["pool"], effect))
            if effect == "NoExecute":
                cluster.put(RESOURCE_CLAIM, {"metadata": {"namespace": "lab", "name": "far"}})

    cluster.after_write = evict
    result = usb("drain", word)
    said = "host pi: drained; kubectl usb undrain outside/pi lets it be used again\n"
    assert (result.code, result.out) == (0, said)
    assert result.err == "host pi: devices of this host: free\n"
    assert written == [("usb-outside/pi", "NoSchedule"), ("usb-outside/pi", "NoExecute")]
    (rule,) = cluster.all(DEVICE_TAINT_RULE)
    assert rule["metadata"]["name"] == f"usb-outside.pi.drain.{DRIVER}"
    result = usb("undrain", word)
    assert (result.code, result.out) == (0, "host pi: in use again\n")
    assert cluster.all(DEVICE_TAINT_RULE) == []


def test_a_node_goes_before_a_host_of_its_name(usb: Cli, cluster: Cluster) -> None:
    cluster.put(NODE, node("pi"))
    cluster.put(CONTRACT.host, {"metadata": {"name": "pi"}, "spec": {"address": "192.0.2.7"}})
    assert usb("drain", "pi").out.startswith("node pi: drained")
    assert len(cluster.all(DEVICE_TAINT_RULE)) == 3
    assert usb("drain", "outside/pi").out.startswith("host pi: drained")
    assert len(cluster.all(DEVICE_TAINT_RULE)) == 4
    usb("undrain", "outside/pi")
    assert len(cluster.all(DEVICE_TAINT_RULE)) == 3


def test_a_host_that_is_not_there_is_none_to_drain(usb: Cli, cluster: Cluster) -> None:
    result = usb("drain", "outside/pi")
    assert result.code != 0
    assert "there is no host pi; see kubectl usb exporter list" in result.err


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("outside/pi", 0, "host pi: drained"),
        ("pi", 3, "there is no node pi, and no such host"),
    ],
)
def test_who_may_not_read_hosts_is_believed_that_one_is_meant(
    usb: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, word: str, code: int, said: str
) -> None:
    read = cluster.get

    async def get(kind: Kind, *words: Any) -> Any:
        if kind == CONTRACT.host:
            raise errors.ApiForbidden("get", 403, "Forbidden", "may not")
        return await read(kind, *words)

    monkeypatch.setattr(cluster, "get", get)
    result = usb("drain", word)
    assert (result.code, said in result.out + result.err) == (code, True)


def test_of_many_claims_some_are_named() -> None:
    names = [f"lab/c{number}" for number in range(7)]
    assert draining._named(names) == "lab/c0, lab/c1, lab/c2, lab/c3, lab/c4 and 2 more"


def test_a_node_that_is_not_there_is_no_node_to_drain(usb: Cli, cluster: Cluster) -> None:
    result = usb("drain", "nowhere")
    assert result.code != 0
    assert "there is no node nowhere" in result.err
    assert cluster.all(DEVICE_TAINT_RULE) == []


def test_a_server_without_taint_rules_is_told_of(
    usb: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(NODE, node("a"))

    async def apply(*_: Any, **__: Any) -> None:
        raise errors.ApiNotFound("apply", 404, "NotFound", "the server could not find it")

    monkeypatch.setattr(cluster, "apply", apply)
    result = usb("drain", "a")
    assert result.code != 0
    assert "serves no DeviceTaintRule" in result.err
    assert "kubectl drain a" in result.err


def test_explain_knows_that_a_node_is_drained() -> None:
    rules = drains.rules(CONTRACT, "a", ("usb",), "NoExecute")
    other = {"deviceSelector": {"driver": "gpu.example.com", "pool": "usb-a"}}
    rules.append({"spec": {**other, "taint": {"key": "x", "effect": "NoSchedule"}}})
    pool = {"name": "usb-a", "generation": 1, "resourceSliceCount": 1}
    values = {"kind": {"string": "usb"}, "node": {"string": "a"}, "name": {"string": STICK}}
    entry = {"name": STICK, "attributes": values}
    item = {"spec": {"driver": DRIVER, "pool": pool, "devices": [entry], "allNodes": True}}
    known = facts(record(), published=published([item], DRIVER, rules))
    said = explain_claim(waiting(by_cel("serial=ABC")), known)
    assert "its node a is drained; kubectl usb undrain a lets it be used again." in said
    assert "toleration" not in said
