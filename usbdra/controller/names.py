# SPDX-License-Identifier: Apache-2.0
"""Which NodeUSBDevice stands for which device of which node. Pure.

A device with a serial has one name on every node (discovery/names.py), so its object, and with
it an assignment, goes along when it is moved. When two nodes have a device of one name at the
same time, the object belongs to the node it already belonged to; the other's device gets an
object of its own, named after its node too, and keeps that as long as the object exists: two
alike never swap.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from usbdra.discovery.names import cluster_name
from usbdra.types import DeviceName, NodeName


def own_name(device: DeviceName, node: NodeName) -> str:
    """The object's name when another node's device has the plain one."""
    return str(cluster_name(device, node, ""))


def owners(
    device: DeviceName, nodes: Set[NodeName], known: Mapping[str, str]
) -> dict[NodeName, str]:
    """Object name by node, for all nodes that publish a device of this name now.

    known: the objects that exist under the plain name and under nodes' own names, each with the
    node it was last on.
    """
    own = {node: own_name(device, node) for node in nodes}
    free = sorted(node for node, name in own.items() if name not in known)
    before = known.get(device)
    first = before if before in free else next(iter(free), None)
    return {node: str(device) if node == first else name for node, name in own.items()}


def owner_of_use(
    device: DeviceName, node: NodeName, present: Mapping[NodeName, str], known: Mapping[str, str]
) -> str:
    """The object whose device a claim has, also when the node does not publish it any more."""
    if node in present:
        return present[node]
    own = own_name(device, node)
    return own if own in known else str(device)
