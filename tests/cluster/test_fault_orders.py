# SPDX-License-Identifier: Apache-2.0
"""Pod, claim and namespace deleted in every order that differs, all at once.

The sticks are in node a and the pods on node b; each order has a namespace of its own, because
one of them is its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.bed import ClusterBed
from tests.cluster.claims import consumer, serial, usb_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

NOW = ("--wait=false",)
FORCE = ("--force", "--grace-period=0", *NOW)


def pod_then_claim(space: Space) -> None:
    space.delete("pod", "user", *NOW)
    space.delete("resourceclaim", "stick", *NOW)


def claim_then_pod(space: Space) -> None:
    """The API keeps a claim that a pod has until the pod is gone."""
    space.delete("resourceclaim", "stick", *NOW)
    assert space.claim("stick")["metadata"]["deletionTimestamp"]
    space.delete("pod", "user", *NOW)


def pod_by_force_then_claim(space: Space) -> None:
    """The API forgets both while the kubelet has not begun to stop the container."""
    space.delete("pod", "user", *FORCE)
    space.delete("resourceclaim", "stick", *NOW)


def namespace_with_both(space: Space) -> None:
    space.api.kubectl("delete", "namespace", space.name, *NOW)


ORDERS: list[Callable[[Space], None]] = [
    pod_then_claim,
    claim_then_pod,
    pod_by_force_then_claim,
    namespace_with_both,
]


@pytest.fixture
def spaces(usb: ClusterBed, nothing_left: None) -> Iterator[list[Space]]:
    """A namespace for each order."""
    with ExitStack() as stack:
        made = []
        for _ in ORDERS:
            made.append(Space(usb.api))
            stack.callback(made[-1].remove)
        yield made


def test_r46_everything_is_given_back_whatever_goes_first(
    usb: ClusterBed, gadgets: Gadgets, spaces: list[Space]
) -> None:
    sticks = [gadgets.plug("a", f"ORDER{number}") for number, _ in enumerate(spaces)]
    for stick, space in zip(sticks, spaces, strict=True):
        claim = usb_claim("stick", serial(stick.serial))
        space.apply(claim, consumer("user", "stick", node="b"))
    for space in spaces:
        space.run("user")
    assert len(usb.machine("b").call("usb.used")) == len(sticks)

    for order, space in zip(ORDERS, spaces, strict=True):
        order(space)
    for stick, space in zip(sticks, spaces, strict=True):
        usb.api.wait_pod_gone("user", space.name)
        usb.api.wait(
            usb.api.resource.list_namespaced_resource_claim,
            lambda claims: None if claims else True,
            "the claim is gone",
            namespace=space.name,
        )
        stick.at_home("disks")
