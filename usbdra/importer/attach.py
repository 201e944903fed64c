# SPDX-License-Identifier: Apache-2.0
"""From a granted connection to a usable device, or back to nothing.

Owns the order: attach, enumerate, check who it is, settle; and the way back from every step.
Must not dial or authorise: it gets a connection whose next byte belongs to the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from usbdra.discovery.tree import read_device
from usbdra.errors import AttachFailed, IdentityChanged, UsbdraError
from usbdra.importer.children import Settled, SettleLimits, settle
from usbdra.tracing import spans
from usbdra.transport.ending import LinkEnd
from usbdra.transport.watch import endpoints_of
from usbdra.types import Attachment, PortId, RemoteDevice
from usbdra.usbip.fields import clean_text
from usbdra.vhci.driver import BeforeWrite, Placed, VhciDriver
from usbdra.vhci.waiting import EventSource, Waiter

_log = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""Called when a phase is over, with its name and the seconds it took."""


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """Deadlines in seconds. Their sum, a detach included, stays below kubelet's 45 s."""

    enumerate: float = 15.0
    detach: float = 5.0
    settle: SettleLimits = field(default_factory=SettleLimits)


class Attacher:
    """Attaches devices of other machines to the vhci ports of this one."""

    def __init__(
        self,
        driver: VhciDriver,
        events: EventSource,
        *,
        root: Path = Path("/"),
        limits: AttachLimits | None = None,
    ) -> None:
        self._driver = driver
        self._events = events
        self._root = root
        self._limits = limits or AttachLimits()

    async def attach(
        self,
        sock: socket.socket,
        remote: RemoteDevice,
        *,
        reserved: Collection[PortId] = (),
        timings: tuple[tuple[str, float], ...] = (),
        progress: Progress | None = None,
        before: BeforeWrite | None = None,
    ) -> Attachment:
        """Give the connection to vhci and wait until the device and its children are usable.

        Keeps sock: it is closed in every case, the kernel has its own reference. `timings` are
        the phases before this one and open the result's; `before` as for VhciDriver.attach. On
        failure the port is free again and the exporter sees the connection end. Raises NoFreePort,
        KernelUnsupported, Refused, AttachFailed, IdentityChanged.
        """
        phases = list(timings)
        loop = asyncio.get_running_loop()
        last = loop.time()

        def done(phase: str) -> None:
            nonlocal last
            now = loop.time()
            phases.append((phase, now - last))
            spans.phase(phase, now - last)
            if progress is not None:
                progress(phase, now - last)
            last = now

        with sock:
            try:
                link = endpoints_of(sock)
            except OSError as error:
                raise AttachFailed(f"the link ended before its attach: {error}") from error
            async with Waiter(self._events) as waiter:
                end = LinkEnd(sock)
                placed: Placed | None = None
                try:
                    placed = await self._driver.attach(
                        sock.fileno(),
                        remote.devid,
                        remote.speed_code,
                        reserved=reserved,
                        before=before,
                    )
                    done("attach")
                    settled = await self._usable(placed, remote, waiter, end, done)
                except BaseException:
                    if placed is not None:
                        await self._undo(placed, waiter)
                    raise
                finally:
                    end.close()
        return Attachment(
            port=placed.port,
            hub=placed.hub,
            remote=remote,
            device=settled.device,
            children=settled.children,
            timings=tuple(phases),
            unsettled=settled.unsettled,
            link=link,
        )

    async def _usable(
        self,
        placed: Placed,
        remote: RemoteDevice,
        waiter: Waiter,
        end: LinkEnd,
        done: Callable[[str], None],
    ) -> Settled:
        await self._driver.enumerated(
            placed, waiter, timeout=self._limits.enumerate, ended=end.ended
        )
        with spans.span("identity"):
            self._check_identity(placed, remote)
        done("enumerate")
        settled = await settle(
            self._root, placed.devpath, waiter, limits=self._limits.settle, ended=end.ended
        )
        done("settle")
        return settled

    def _check_identity(self, placed: Placed, remote: RemoteDevice) -> None:
        """The device that came is the one that was granted: vendor, product, serial if told."""
        device = read_device(self._root, f"/sys{placed.devpath}")
        if device is None:
            raise AttachFailed(f"device {placed.busid} went away as soon as it appeared")
        came = f"{device.vendor_id}:{device.product_id}"
        asked = f"{remote.vendor_id}:{remote.product_id}"
        if came != asked:
            raise IdentityChanged(f"asked for device {asked} and {came} came instead")
        serial = clean_text(device.serial or "")
        if remote.serial and serial != remote.serial:
            raise IdentityChanged(
                f"asked for {asked} with serial {remote.serial!r} and one with {serial!r} came"
            )

    async def _undo(self, placed: Placed, waiter: Waiter) -> None:
        """Free the port. What fails here is logged: the first error is the one to report."""
        try:
            await self._driver.detach(placed.port, waiter, timeout=self._limits.detach)
        except UsbdraError as error:
            _log.error("after a failed attach: %s", error, extra={"port": placed.port})
