# SPDX-License-Identifier: Apache-2.0
"""The other ways to encrypt a USB/IP link: stunnel and WireGuard between nodes a and b.

Owns their set-up, each as its manual has it, and with what USB/IP needs to be quick (TCP_NODELAY).
Nothing of ours is in them: certificates are of openssl, keys of wg. Must not measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.bed.bed import Bed
from tests.bed.node import Node

PACKAGES = ("stunnel4", "wireguard-tools")
STOCK_PORT = 3240
TUNNEL_PORT = 3250
WIREGUARD_PORT = 51820
WIREGUARD_NET = "10.77.0"
SUITE = "TLS_AES_256_GCM_SHA384"
"""What our links agree on too: OpenSSL's first choice."""

_STUNNEL = """
foreground = yes
syslog = no
pid =
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
sslVersion = TLSv1.3
ciphersuites = {suite}
[usbip]
{lines}
"""
_CERTIFICATE = (
    "umask 077; cd /run/bench; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
    "-nodes -subj /CN=stunnel -days 2 -keyout key.pem -out cert.pem"
)


@contextmanager
def stunnel(bed: Bed) -> Iterator[str]:
    """A tunnel from b's loopback to a's usbipd; yields the options of b's usbip for it."""
    a, b = bed["a"], bed["b"]
    a.run(_CERTIFICATE)
    b.write("/run/bench/cert.pem", a.read("/run/bench/cert.pem"))
    to_us = f"accept = {TUNNEL_PORT}\nconnect = 127.0.0.1:{STOCK_PORT}\n"
    to_us += "cert = /run/bench/cert.pem\nkey = /run/bench/key.pem"
    to_them = f"client = yes\naccept = 127.0.0.1:{TUNNEL_PORT}\nconnect = {a.ip}:{TUNNEL_PORT}\n"
    to_them += "CAfile = /run/bench/cert.pem\nverifyPeer = yes"
    with _stunnel(a, to_us), _stunnel(b, to_them):
        yield f"--tcp-port {TUNNEL_PORT} attach -r 127.0.0.1"


@contextmanager
def _stunnel(node: Node, lines: str) -> Iterator[None]:
    node.write("/run/bench/stunnel.conf", _STUNNEL.format(suite=SUITE, lines=lines))
    program = node.start(["stunnel", "/run/bench/stunnel.conf"])
    try:
        program.wait_for("Configuration successful")
        yield
    finally:
        program.stop()


@contextmanager
def wireguard(bed: Bed) -> Iterator[str]:
    """An interface wg0 on both nodes; yields the options of b's usbip for it."""
    nodes = {f"{WIREGUARD_NET}.{i}": bed[name] for i, name in enumerate("ab", start=1)}
    keys = {
        address: node.sh("umask 077; wg genkey | tee /run/bench/wg.key | wg pubkey")
        for address, node in nodes.items()
    }
    try:
        for address, node in nodes.items():
            ((other, peer),) = [pair for pair in nodes.items() if pair[0] != address]
            node.run(
                "set -e; ip link add wg0 type wireguard; "
                f"wg set wg0 private-key /run/bench/wg.key listen-port {WIREGUARD_PORT} "
                f"peer {keys[other]} allowed-ips {other}/32 endpoint {peer.ip}:{WIREGUARD_PORT}; "
                f"ip addr add {address}/24 dev wg0; ip link set wg0 up"
            )
        yield f"attach -r {WIREGUARD_NET}.1"
    finally:
        for node in nodes.values():
            node.run("ip link del wg0", check=False)


def through_wireguard(node: Node) -> int:
    """Bytes that the node has received and sent through wg0."""
    _, received, sent = node.sh("wg show wg0 transfer").split()
    return int(received) + int(sent)
