# SPDX-License-Identifier: Apache-2.0
"""The parts a command needs, made from its settings.

Owns composition for single commands; the agent has its own. Heavy parts are imported where they
are made, so that a command pays only for what it uses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usbdra.config import Settings
    from usbdra.discovery.policy import Policy
    from usbdra.discovery.snapshot import Snapshot
    from usbdra.discovery.uevent import UeventHub
    from usbdra.transport.ktls import Encryption
    from usbdra.transport.tls import Identity
    from usbdra.vhci.driver import VhciDriver


def node_name(settings: Settings) -> str:
    """The node's name from the settings, or this machine's host name."""
    return settings.node or os.uname().nodename


def policy(settings: Settings) -> Policy:
    """The operator's rules. Raises ConfigError naming the rule that cannot be used."""
    from usbdra.discovery.policy import Policy

    rules = settings.policy or {}
    return Policy.from_mapping({**rules, "forwardLowSpeed": settings.forward_low_speed})


def snapshot(settings: Settings) -> Snapshot:
    """One look at the node's devices."""
    from usbdra.discovery.inventory import scan

    return scan(settings.root, node=node_name(settings), policy=policy(settings))


def vhci(settings: Settings) -> VhciDriver:
    """The node's vhci ports."""
    from usbdra.vhci.driver import VhciDriver

    lock = settings.run_dir / "vhci.lock"
    return VhciDriver(settings.root, node=node_name(settings), lock_file=lock)


def identity(settings: Settings) -> Identity:
    """This node's certificate. Raises ConfigError with the command that makes one."""
    from usbdra.errors import ConfigError
    from usbdra.transport.tls import Identity, TlsFiles

    files = TlsFiles.in_directory(settings.pki_dir)
    missing = [path for path in (files.cert, files.key, files.ca) if not path.exists()]
    if missing:
        raise ConfigError(
            f"no {', '.join(str(path) for path in missing)}: links are encrypted and need this "
            f"node's certificate; `usbdra pki issue {node_name(settings)}` on the machine with "
            "the CA makes one, --plain does without"
        )
    return Identity(files)


def outside_name(settings: Settings) -> str | None:
    """The name of this host in the cluster whose certificate it has, outside of which it is;
    None for a certificate of another purpose. Raises ConfigError."""
    from usbdra.pki import commands
    from usbdra.types import outside_host

    (own,) = commands.show(identity(settings).files.cert)
    return outside_host(own.node) if own.node else None


def encryption(settings: Settings) -> Encryption:
    """What this end agrees to on authenticated links."""
    from usbdra.transport.ktls import Encryption

    return Encryption(settings.encryption)


@contextmanager
def uevents() -> Iterator[UeventHub]:
    """The kernel's events, while inside. Needs a running event loop."""
    from usbdra.discovery.uevent import NetlinkSource, UeventHub

    hub = UeventHub(NetlinkSource())
    hub.start()
    try:
        yield hub
    finally:
        hub.close()
