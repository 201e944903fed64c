# SPDX-License-Identifier: Apache-2.0
"""The controller's part for hosts outside the cluster: one follower for each USBExporterHost.

Owns which hosts are followed, and the way to them. A host has no access to the API: the leader
asks it for its devices, over a link on which both show certificates of the cluster's CA.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from usbdra.controller import castore
from usbdra.controller.outsidehost import HostFacts, OutsideHost
from usbdra.controller.outsidelink import OutsideLink
from usbdra.controller.outsidesessions import SessionCheck
from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.controller.ownpeer import OwnPeer
from usbdra.errors import UsbdraError
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import Object
from usbdra.kube.watch import Change, Key, Reflector

log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0


class OutsidePart:
    """See controller/parts.py."""

    def __init__(
        self,
        api: KubeClient,
        contract: Contract,
        names: castore.Names,
        settings: OutsideSettings,
        on_look: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._api = api
        self._contract = contract
        self._settings = settings
        self._self = OwnPeer(api, names)
        self._sessions = SessionCheck(api, contract)
        self._on_look = on_look
        self._hosts: dict[str, OutsideHost] = {}
        self._links: dict[str, OutsideLink] = {}
        self._followed: dict[str, tuple[tuple[str, str], asyncio.Task[None]]] = {}

    def ended(self, key: Key) -> None:
        """See outsidelink.py: sessions that stand on it may be over."""
        for link in self._links.values():
            link.ended(key)

    def facts(self) -> list[HostFacts]:
        """What is known of each host that is followed now."""
        return [host.facts for _, host in sorted(self._hosts.items())]

    async def run(self) -> None:
        """Follow all hosts until cancelled."""
        hosts = Reflector(self._api, self._contract.host, on_error=_complain)
        async with asyncio.TaskGroup() as group:
            async for change in hosts.run():
                if isinstance(change, Change):
                    await self._changed(group, change)

    async def _changed(self, group: asyncio.TaskGroup, change: Change) -> None:
        """Begin, end, or begin anew when it is another object or has another address."""
        name, item = change.key[1], change.new
        wanted = None if item is None else (item["metadata"]["uid"], item["spec"]["address"])
        current = self._followed.get(name)
        if current is not None and current[0] != wanted:
            del self._followed[name]
            current[1].cancel()
            await asyncio.wait([current[1]])
        if item is not None and wanted is not None and name not in self._followed:
            self._followed[name] = (wanted, group.create_task(self._follow(item)))

    async def _follow(self, item: Object) -> None:
        """One host's mistake must not cost the others their looks."""
        name = str(item["metadata"]["name"])
        while True:
            try:
                await self._follow_over(self._link_to(item), item)
            except Exception:
                log.exception("host %s is looked at anew", name)
            await asyncio.sleep(RESTART_SECONDS)

    async def _follow_over(self, link: OutsideLink, item: Object) -> None:
        name = str(item["metadata"]["name"])
        host = OutsideHost(
            self._api,
            self._contract,
            item,
            link.look,
            link.reset,
            assignment=self._settings.assignment,
            seconds=self._settings.look_seconds,
            silent=self._settings.silent_seconds,
            on_look=self._on_look,
        )
        self._links[name], self._hosts[name] = link, host
        try:
            await host.run()
        finally:
            del self._links[name], self._hosts[name]
            link.close()

    def _link_to(self, item: Object) -> OutsideLink:
        name, address = str(item["metadata"]["name"]), str(item["spec"]["address"])
        return OutsideLink(name, address, self._self, self._sessions.over, self._settings)


def _complain(error: UsbdraError) -> None:
    if isinstance(error, errors.ApiNotFound):
        log.error("there is no kind USBExporterHost in this cluster: %s", error)
    else:
        log.warning("hosts outside the cluster are not watched: %s", error)
