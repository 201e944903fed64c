# SPDX-License-Identifier: Apache-2.0
"""What runs while this controller leads: parts, each kept alive without the others.

Owns the list of parts and their restarts. A part is made anew for every term of office, so that
it starts from what the API holds and from nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from usbdra.controller.endings import Endings
from usbdra.controller.issuing import Issuing
from usbdra.controller.metering import Metering
from usbdra.controller.options import ControllerOptions
from usbdra.dumping import StateDump
from usbdra.kube.client import KubeClient

log = logging.getLogger(__name__)

RESTART = (1.0, 60.0)
"""Shortest and longest pause before a part that failed is made again, in seconds."""


@dataclass(frozen=True, slots=True)
class Office:
    """What a part is given."""

    api: KubeClient
    options: ControllerOptions
    metering: Metering = field(default_factory=lambda: Metering(None))
    dump: StateDump = field(default_factory=StateDump)
    endings: Endings = field(default_factory=Endings)


class Part(Protocol):
    """One job of the controller."""

    async def run(self) -> None:
        """Work until cancelled; an error ends this part, and it is made anew."""
        ...


Factory = Callable[[Office], Part]


def factories(options: ControllerOptions) -> Sequence[tuple[str, Factory]]:
    """Name and factory of every part, in the order of their start."""
    made: list[tuple[str, Factory]] = [("devices", _devices)]
    if options.certificates is not None:
        made.append(("certificates", _certificates))
    if options.outside is not None:
        made.append(("outside", _outside))
    if options.machines is not None:
        made.append(("attachments", _attachments))
    return made


def _devices(office: Office) -> Part:
    from usbdra.controller.devices import DevicesPart

    return DevicesPart(office)


def _attachments(office: Office) -> Part:
    from usbdra.controller.attachments import AttachmentsPart

    return AttachmentsPart(office)


def _certificates(office: Office) -> Part:
    options = office.options
    assert options.certificates is not None
    part = Issuing(
        office.api, options.namespace, options.group, options.certificates, options.outside
    )
    office.metering.follow_authority(part.life)
    return part


def _outside(office: Office) -> Part:
    from usbdra.controller.castore import Names
    from usbdra.controller.outside import OutsidePart

    options = office.options
    assert options.outside is not None
    part = OutsidePart(
        office.api,
        options.contract,
        Names(options.namespace),
        options.outside,
        office.metering.looked_outside,
    )
    office.endings.follow(part.ended)
    office.metering.follow_outside(part.facts)
    return part


async def run_parts(office: Office, made_by: Sequence[tuple[str, Factory]]) -> None:
    """Keep all parts running until cancelled."""
    async with asyncio.TaskGroup() as group:
        for name, factory in made_by:
            group.create_task(_keep(name, factory, office))
        await asyncio.Event().wait()


async def _keep(name: str, factory: Factory, office: Office) -> None:
    low, high = RESTART
    pause = low
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        try:
            await factory(office).run()
            log.error("part %s ended by itself", name)
        except Exception:  # one part's mistake must not cost the others their work
            log.exception("part %s failed", name)
        office.metering.restarted(name)
        if loop.time() - started > high:
            pause = low
        await asyncio.sleep(pause)
        pause = min(pause * 2, high)
