# SPDX-License-Identifier: Apache-2.0
"""The broker of a host's own devices: leases, and what happens when a session ends.

Owns who holds which device. Must not write to the kernel itself (exporter/bind.py does) and must
not listen on the network (exporter/server.py does).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from usbdra.discovery.snapshot import Snapshot
from usbdra.errors import DeviceBusy, ExportFailed, NotFound, Refused, UsbdraError
from usbdra.exporter.bind import Binder
from usbdra.exporter.broker import Granted, GrantRequest, Peer
from usbdra.exporter.lease import (
    Authorise,
    HeldHere,
    Lease,
    Outlived,
    Ports,
    holder_of,
    remote_of,
    unavailable,
)
from usbdra.exporter.stubhost import USED
from usbdra.state.exports import Session
from usbdra.tracing.spans import span, spanned
from usbdra.transport.ending import LinkEnd
from usbdra.transport.watch import endpoints_of
from usbdra.types import BusId, DeviceName, Endpoints, NodeName, Offer, RemoteDevice

_log = logging.getLogger(__name__)


class LocalBroker:
    """Implements exporter/broker.py for the devices that `snapshot()` shows right now.

    `authorise` has the word on each request after policy; the default lets in whom the listener
    let in. A session that `outlived` its claim makes way for the next rightful one. What is
    `held_here`, by this node's own consumers, is never given away. `ports` is told what is in use,
    `on_session` that a session began or is over.
    """

    def __init__(
        self,
        binder: Binder,
        snapshot: Callable[[], Snapshot],
        *,
        authorise: Authorise | None = None,
        outlived: Outlived | None = None,
        held_here: HeldHere | None = None,
        ports: Ports | None = None,
        on_session: Callable[[], None] = lambda: None,
    ) -> None:
        self._binder = binder
        self._snapshot = snapshot
        self._authorise = authorise
        self._outlived = outlived
        self._held_here = held_here
        self._ports = ports
        self._on_session = on_session
        self._leases: dict[BusId, Lease] = {}
        self._failed: dict[BusId, UsbdraError | OSError] = {}

    async def start(self) -> None:
        """Work off what an earlier run left: running sessions become leases again."""
        found = await self._binder.recover()
        offers = {offer.device.busid: offer for offer in self._snapshot().offers}
        for record in found.running:
            offer = offers.get(record.busid)
            if offer is not None and record.session is not None:
                syspath = offer.device.syspath
                lease = Lease(record.session, remote_of(offer), syspath, adopted=True)
                lease.pinned = record.pinned
                self._begin(lease)
        for busid, error in found.failures:
            _log.error("device left half released: %s", error, extra={"device": busid})
            self._failed[busid] = error
        for aside in found.set_aside:
            _log.error("record %s %s; it is kept as %s", aside.name, aside.reason, aside.path)

    async def stop(self) -> None:
        """Stop watching. Running sessions are the kernel's and go on; reserved devices that
        were never handed over go back to the host."""
        for lease in list(self._leases.values()):
            running = lease.adopted or lease.follower is not None
            if lease.closing is not None or not running:
                await self._close(lease)
            elif lease.follower is not None:
                lease.follower.cancel()
                await asyncio.wait([lease.follower])
                if lease.end is not None:
                    lease.end.close()

    async def inventory(self, peer: Peer) -> Sequence[RemoteDevice]:
        """See Broker: what may cross nodes, and of each whether it can be had now."""
        found = []
        for offer in self._snapshot().offers:
            busid = offer.device.busid
            lease = await self._current(busid)
            if lease is not None:
                found.append(unavailable(lease.device, f"in use by {lease.session.holder}"))
            elif busid in self._failed:
                found.append(unavailable(remote_of(offer), str(self._failed[busid])))
            elif offer.exportable:
                found.append(remote_of(offer))
        return found

    async def acquire(
        self, request: GrantRequest, peer: Peer, sock: socket.socket | None = None
    ) -> Granted:
        """See Broker; the listener's word for the peer is enough here. The same claim, asked for
        by the same node, replaces its own session."""
        started = time.monotonic()
        await self._settled(request.device)
        snapshot = self._snapshot()
        snapshot.require_face(DeviceName(request.device))
        offer = snapshot.find(request.device)
        if not offer.exportable:
            self._binder.require_unused(offer.device.busid)
            raise Refused(f"device {offer.name} is not offered: {offer.reason}")
        if self._authorise is not None:
            with span("authorise"):
                await self._authorise(offer, request, peer)
        await self._free(offer, request, peer)
        lease = Lease(
            Session(uuid.uuid4().hex, holder_of(request, peer), request.claim, peer.node),
            remote_of(offer),
            offer.device.syspath,
        )
        # No await since _free: neither a peer nor this node came between.
        holder = self._held_here(offer.name) if self._held_here is not None else None
        if holder is not None:
            raise DeviceBusy(offer.name, str(holder))
        self._begin(lease)
        authorised = time.monotonic()
        try:
            await self._bind(offer, lease)
        except BaseException:
            self._forget(lease)
            raise
        bound = time.monotonic()
        timings = (("authorise", authorised - started), ("bind", bound - authorised))
        return Granted(lease.session.key, lease.device, timings)

    @spanned("begin-session")
    async def hand_over(self, granted: Granted, sock: socket.socket) -> None:
        """See Broker. From here on the end of the connection releases the device."""
        lease = self._by_key(granted.session)
        if lease is None or lease.closing is not None:
            raise ExportFailed(f"session for {granted.device.busid} is over; ask again")
        try:
            lease.session = replace(lease.session, link=endpoints_of(sock))
        except OSError as error:
            await self._close(lease)
            raise ExportFailed(f"the importer of {lease.device.busid} is gone: {error}") from error
        end = LinkEnd(sock)
        try:
            await self._binder.hand_over(lease.device.busid, sock.fileno(), lease.session)
        except BaseException:
            end.close()
            await self._close(lease)
            raise
        lease.end = end
        lease.follower = asyncio.create_task(self._follow(lease, end))
        self._on_session()

    async def abandon(self, granted: Granted) -> None:
        """See Broker."""
        lease = self._by_key(granted.session)
        if lease is not None:
            await self._close(lease)

    def holders(self) -> dict[str, str]:
        """Who has which device, in words, by bus id; also one that is on its way back."""
        return {busid: lease.session.holder for busid, lease in self._leases.items()}

    def holder(self, busid: BusId) -> str | None:
        """Who has the device over the network, in words; None when nobody."""
        lease = self._leases.get(busid)
        return lease.session.holder if lease is not None else None

    def sessions(self) -> list[tuple[DeviceName, Session]]:
        """The sessions that run for claims, each with its device."""
        return [
            (lease.device.name, lease.session)
            for lease in self._leases.values()
            if lease.device.name is not None and lease.session.link is not None
        ]

    async def end(self, key: str) -> None:
        """End the session of this key; one that is over is none."""
        lease = self._by_key(key)
        if lease is not None:
            facts = {"device": lease.device.busid, "holder": lease.session.holder}
            _log.info("session is ended for its cluster", extra=facts)
            await self._close(lease)

    async def reclaim(self, offer: Offer) -> bool:
        """Return with no lease on a device that a rightful claim of this node wants.

        A session that outlived its claim is ended: True then, and the host's drivers have only
        just begun to come back. Raises DeviceBusy that names the holder.
        """
        ended = False
        while (lease := await self._current(offer.device.busid)) is not None:
            if lease.closing is None:
                await self._require_outlived(lease, offer)
            await self._close(lease)
            ended = True
        return ended

    async def end_sessions_of(self, node: NodeName) -> None:
        """End what a node has of ours, for it is not in the cluster any more."""
        for lease in list(self._leases.values()):
            if lease.session.node == node:
                _log.info("session is ended", extra={"device": lease.device.busid, "peer": node})
                await self._close(lease)

    def link_ended(self, link: Endpoints | None) -> None:
        """The kernel says that this connection is over; None: look at all of them.

        Only sessions that nothing here holds a descriptor of are heard of this way.
        """
        for busid, lease in list(self._leases.items()):
            if link is None:
                ended = lease.adopted and self._binder.status(busid) != USED
            else:
                ended = lease.session.link == link
            if ended and lease.closing is None:
                lease.over = True
                _log.info("session ended", extra={"device": busid})
                self._start_closing(lease)

    @spanned("bind")
    async def _bind(self, offer: Offer, lease: Lease) -> None:
        busid = offer.device.busid
        if busid in self._failed:
            await self._binder.release(busid)
            del self._failed[busid]
        record = await self._binder.bind(busid, session=lease.session)
        lease.pinned = record.pinned
        if self._binder.devid(busid) != lease.device.devid:
            await self._release(lease)
            raise NotFound(f"device {offer.name} was replugged meanwhile; ask again")

    async def _free(self, offer: Offer, request: GrantRequest, peer: Peer) -> None:
        """Return with no lease on the device, or raise DeviceBusy that names its holder."""
        while (lease := await self._current(offer.device.busid)) is not None:
            session = lease.session
            own = (
                request.claim is not None
                and session.claim is not None
                and request.claim.uid == session.claim.uid
                and peer.node == session.node
            )
            if not own and lease.closing is None:
                await self._require_outlived(lease, offer)
            await self._close(lease)

    async def _require_outlived(self, lease: Lease, offer: Offer) -> None:
        """The session's claim has lost the device, or DeviceBusy that names the holder."""
        if self._outlived is None or not await self._outlived(offer.name, lease.session):
            raise DeviceBusy(offer.name, lease.session.holder)

    async def _settled(self, key: str) -> None:
        """Wait for a release under way: until it is done the device is no one's offer."""
        for lease in list(self._leases.values()):
            if key in (lease.device.name, lease.device.busid) and lease.closing is not None:
                await self._close(lease)

    async def _current(self, busid: BusId) -> Lease | None:
        """The lease on a device; an adopted one whose session is over by now is closed first."""
        lease = self._leases.get(busid)
        if lease is not None and lease.adopted and self._binder.status(busid) != USED:
            lease.over = True
            await self._close(lease)
        return self._leases.get(busid)

    async def _follow(self, lease: Lease, end: LinkEnd) -> None:
        await end.ended
        lease.over = True
        _log.info("session ended", extra={"device": lease.device.busid})
        self._start_closing(lease)

    async def _close(self, lease: Lease) -> None:
        """End the lease, once; returns when the device is back or known not to be."""
        await asyncio.shield(self._start_closing(lease))

    def _start_closing(self, lease: Lease) -> asyncio.Task[None]:
        if lease.closing is None:
            lease.closing = asyncio.create_task(self._finish(lease))
        return lease.closing

    async def _finish(self, lease: Lease) -> None:
        busid = lease.device.busid
        try:
            if lease.end is not None:
                lease.over = lease.over or lease.end.ended.done()
                lease.end.close()
            # The kernel ends what its peer ended; only a session that runs is ended by us.
            if lease.over:
                await self._binder.session_over(busid, of=lease.session)
            else:
                await self._binder.end_session(busid, of=lease.session)
            await self._release(lease)
        except NotFound:
            _log.info("device was unplugged", extra={"device": busid})
        except (UsbdraError, OSError) as error:
            self._failed[busid] = error
            _log.error("device is not back with its host: %s", error, extra={"device": busid})
        finally:
            self._forget(lease)

    async def _release(self, lease: Lease) -> None:
        if not lease.pinned:
            await self._binder.release(lease.device.busid, of=lease.session)

    def _begin(self, lease: Lease) -> None:
        self._leases[lease.device.busid] = lease
        if self._ports is not None and lease.device.name is not None:
            self._ports.taken(lease.syspath, lease.device.name, lease.session)

    def _forget(self, lease: Lease) -> None:
        if self._leases.get(lease.device.busid) is lease:
            del self._leases[lease.device.busid]
            if self._ports is not None:
                self._ports.left(lease.syspath)
            self._on_session()

    def _by_key(self, key: str) -> Lease | None:
        return next((one for one in self._leases.values() if one.session.key == key), None)
