# SPDX-License-Identifier: Apache-2.0
"""Who may connect, who may ask, and for which device. Pure.

Owns the decisions and their two texts: `public` for the peer, `detail` for our own log. A peer
learns why it was refused, and nothing of devices, peers or networks it has no business with:
a device kept from it reads like one that is not there. Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from usbdra.errors import ConfigError
from usbdra.exporter.broker import Peer
from usbdra.types import NodeName, RemoteDevice, is_node

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Decision:
    """Yes, or no with a text for the peer and one for the log."""

    allowed: bool
    public: str = ""
    detail: str = ""


_YES = Decision(True)


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Rules of one listener. Empty `networks` or None for `nodes` do not narrow anything.

    `devices` maps a device's stable name or bus id to the nodes that may have it; a device it
    does not name is open to every node that may ask at all. `others` are the peers that may ask
    and are no nodes: whoever else has a certificate of the CA for another purpose has no business
    here.
    """

    networks: tuple[Network, ...] = ()
    nodes: frozenset[NodeName] | None = None
    devices: Mapping[str, frozenset[NodeName]] = field(default_factory=dict)
    others: frozenset[NodeName] = frozenset()

    def connection(self, address: str) -> Decision:
        """May this address connect? Asked before a byte is read."""
        if not self.networks:
            return _YES
        # A scope (fe80::1%eth0) is this host's affair, a mapped address is an IPv4 peer's.
        parsed = ip_address(address.partition("%")[0])
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        if any(parsed in network for network in self.networks):
            return _YES
        return Decision(False, detail=f"{address} is in none of the allowed networks")

    def peer(self, peer: Peer) -> Decision:
        """May this peer ask for anything? A peer on a plain link has no name to be listed by."""
        if peer.node is not None and not is_node(peer.node):
            if peer.node in self.others:
                return _YES
            text = f"{peer.node} is no node of the cluster"
            return Decision(False, public=text, detail=text)
        if self.nodes is None or peer.node in self.nodes:
            return _YES
        who = f"node {peer.node}" if peer.node else "a peer without a certificate"
        return Decision(
            False,
            public=f"{who} is not on this exporter's list of allowed nodes",
            detail=f"{who} is not among the {len(self.nodes)} allowed nodes",
        )

    def offers(self, peer: Peer, device: RemoteDevice) -> bool:
        """May this peer have, or even see, this device?"""
        rules = (self.devices.get(key) for key in (device.busid, device.name) if key)
        return all(nodes is None or peer.node in nodes for nodes in rules)


def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """CIDR texts to networks. Raises ConfigError naming the wrong one."""
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as exc:
            raise ConfigError(f"{text!r} is not a network in CIDR form: {exc}") from exc
    return tuple(networks)
