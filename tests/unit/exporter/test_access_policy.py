# SPDX-License-Identifier: Apache-2.0
"""Who may connect, ask and see what, and which of two texts says so."""

from __future__ import annotations

import pytest

from tests.fakes.broker import KEYBOARD, STICK
from usbdra.errors import ConfigError
from usbdra.exporter.broker import Peer
from usbdra.exporter.policy import AccessPolicy, parse_networks
from usbdra.types import NodeName

A = Peer("10.0.0.1", 40000, NodeName("node-a"))
B = Peer("fd00::2", 40000, NodeName("node-b"))
PLAIN = Peer("10.0.0.9", 40000)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.0.0.1", True),
        ("10.1.0.1", False),
        ("::ffff:10.0.0.1", True),
        ("fd00::2", True),
        ("fd01::2", False),
        ("fe80::1%eth0", True),
    ],
)
def test_networks(address: str, allowed: bool) -> None:
    networks = parse_networks(("10.0.0.0/24", "fd00::/64", "fe80::/64"))
    assert AccessPolicy(networks=networks).connection(address).allowed is allowed
    assert AccessPolicy().connection(address).allowed


def test_wrong_network_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'10\.0\.0\.1/24' is not a network"):
        parse_networks(("10.0.0.0/8", "10.0.0.1/24"))


def test_nodes() -> None:
    policy = AccessPolicy(nodes=frozenset((NodeName("node-a"),)))
    assert policy.peer(A).allowed
    refused = policy.peer(B)
    assert refused.public == "node node-b is not on this exporter's list of allowed nodes"
    assert "node-a" not in refused.public
    assert not policy.peer(PLAIN).allowed
    assert AccessPolicy().peer(PLAIN).allowed


@pytest.mark.parametrize("key", [STICK.busid, STICK.name])
def test_devices_by_name_and_by_bus_id(key: str) -> None:
    policy = AccessPolicy(devices={key: frozenset((NodeName("node-a"),))})
    assert [policy.offers(peer, STICK) for peer in (A, B, PLAIN)] == [True, False, False]
    assert all(policy.offers(peer, KEYBOARD) for peer in (A, B, PLAIN))


def test_both_rules_of_one_device_hold() -> None:
    rules = {"1-1.4": frozenset((A.node,)), STICK.name: frozenset((B.node,))}
    policy = AccessPolicy(devices=rules)  # type: ignore[arg-type]
    assert not policy.offers(A, STICK)
    assert not policy.offers(B, STICK)


def test_peers_read_well() -> None:
    assert str(A) == "node-a at 10.0.0.1:40000"
    assert str(B) == "node-b at [fd00::2]:40000"
    assert str(PLAIN) == "unauthenticated at 10.0.0.9:40000"
    assert (A.authenticated, PLAIN.authenticated) == (True, False)


def test_who_is_no_node_asks_only_where_that_is_foreseen() -> None:
    controller, host = (
        Peer("10.0.0.3", 1, NodeName(name)) for name in ("cluster/controller", "outside/pi")
    )
    for policy in (AccessPolicy(), AccessPolicy(nodes=frozenset((NodeName("node-a"),)))):
        for peer in (controller, host):
            assert policy.peer(peer).public == f"{peer.node} is no node of the cluster"
    foreseen = AccessPolicy(others=frozenset((NodeName("cluster/controller"),)))
    assert foreseen.peer(controller).allowed
    assert not foreseen.peer(host).allowed
    assert foreseen.peer(A).allowed
