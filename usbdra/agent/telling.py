# SPDX-License-Identifier: Apache-2.0
"""What an agent tells of its own state, and of devices that come and go.

Owns the words. Only reads; nothing here is a secret. Must not be called in a hurry: the dump looks
at every record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from usbdra.agent.facts import Parts
from usbdra.discovery.live import Change
from usbdra.dumping import StateDump, some
from usbdra.state.claims import ClaimRecord, DeviceRecord
from usbdra.types import Offer

log = logging.getLogger(__name__)


def follow(dump: StateDump, parts: Parts) -> None:
    """Have the dump tell this agent's claims, ports, links, devices and queues."""
    dump.add("claims", lambda: some({r.ref.uid: _claim(r) for r in parts.records()}))
    dump.add("devices", lambda: some({o.name: _device(o) for o in parts.snapshot().offers}))
    dump.add("ports", lambda: {f"{h} {s}": n for (h, s), n in parts.ports.states().items() if n})
    dump.add("sessions", lambda: some(parts.holders()))
    dump.add("agent", lambda: _agent(parts))


def tell(change: Change) -> None:
    """One line for each device that came or went."""
    old = {offer.name: offer for offer in change.old.offers}
    new = {offer.name: offer for offer in change.new.offers}
    for name in new.keys() - old.keys():
        log.info("device plugged in", extra={"device": name, **_device(new[name])})
    for name in old.keys() - new.keys():
        log.info("device pulled", extra={"device": name, **_device(old[name])})


def _agent(parts: Parts) -> Mapping[str, object]:
    stats = parts.slices()
    return {
        "ready": parts.ready(),
        "restoring": parts.restoring(),
        "queued_reports": parts.queued(),
        "slice_writes": stats.writes if stats else 0,
        "slice_retries": stats.errors if stats else 0,
    }


def _claim(record: ClaimRecord) -> dict[str, object]:
    told: dict[str, object] = {"claim": str(record.ref), "phase": record.phase.value}
    if record.error:
        told["error"] = record.error
    return {**told, "devices": [_held(device) for device in record.devices]}


def _held(device: DeviceRecord) -> dict[str, object]:
    told: dict[str, object] = {
        "device": device.name,
        "node": device.node,
        "route": device.route.value,
    }
    held = device.held
    if held is None:
        return {**told, "held": False}
    told |= {"busid": held.busid, "number": f"{held.busnum}/{held.devnum}"}
    if held.port is not None:
        told["port"] = held.port
    if held.link is not None:
        told["link"] = str(held.link)
    return told


def _device(offer: Offer) -> dict[str, object]:
    device = offer.device
    told: dict[str, object] = {"busid": device.busid, "speed": device.speed.mbit_text}
    told["offer"] = "cluster" if offer.exportable else "local" if offer.usable else "none"
    return {**told, "why": offer.reason} if offer.reason else told
