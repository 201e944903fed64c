# SPDX-License-Identifier: Apache-2.0
"""The DRA service v1 that the kubelet calls: claims in, a result for each claim out.

Owns the translation between messages and prepare.py. One bad claim never fails a call, and a
call that the kubelet gives up on does not stop the work half way. Source: k8s.io/kubelet
v0.37.2, pkg/apis/dra/v1/api.proto.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from usbdra._pb import dra_v1_pb2 as pb
from usbdra.errors import UsbdraError
from usbdra.plugin import cdi
from usbdra.plugin.rpc import Handler, handlers
from usbdra.state.claims import ClaimRecord, ClaimRef
from usbdra.types import ClaimUid

log = logging.getLogger(__name__)

T = TypeVar("T")

NAME = "v1.DRAPlugin"
"""How the registration lists this service (pkg/apis/dra/v1/types.go)."""


class Preparing(Protocol):
    """What of prepare.py `Preparer` the service calls."""

    async def prepare(self, ref: ClaimRef) -> ClaimRecord:
        """Make a claim's devices usable. Raises UsbdraError."""
        ...

    async def unprepare(self, ref: ClaimRef) -> None:
        """Give a claim's devices back. Raises UsbdraError."""


class DraService:
    """NodePrepareResources and NodeUnprepareResources."""

    def __init__(self, driver: str, preparer: Preparing) -> None:
        self._driver = driver
        self._preparer = preparer
        self._tasks: set[asyncio.Task[Any]] = set()

    def handlers(self) -> Handler:
        """What a gRPC server adds to serve this service."""
        return handlers(
            pb.DESCRIPTOR,
            "DRAPlugin",
            {
                "NodePrepareResources": self.prepare,
                "NodeUnprepareResources": self.unprepare,
            },
        )

    async def prepare(
        self, request: pb.NodePrepareResourcesRequest, context: object
    ) -> pb.NodePrepareResourcesResponse:
        """Prepare all claims of the request side by side."""
        results = await self._for_each(request.claims, self._prepare_one)
        return pb.NodePrepareResourcesResponse(claims=results)

    async def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, context: object
    ) -> pb.NodeUnprepareResourcesResponse:
        """Unprepare all claims of the request side by side; each has an entry in the answer."""
        results = await self._for_each(request.claims, self._unprepare_one)
        return pb.NodeUnprepareResourcesResponse(claims=results)

    async def aclose(self) -> None:
        """Stop what still runs; records say what is left to do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _for_each(
        self, claims: Iterable[pb.Claim], work: Callable[[ClaimRef], Awaitable[T]]
    ) -> dict[str, T]:
        """Results by UID. The work goes on when the call is cancelled: it has its own limits."""
        refs = {claim.uid: _ref(claim) for claim in claims}
        tasks = [self._start(work(ref)) for ref in refs.values()]
        results = await asyncio.gather(*(asyncio.shield(task) for task in tasks))
        return dict(zip(refs, results, strict=True))

    def _start(self, work: Awaitable[T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(_waiting(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _prepare_one(self, ref: ClaimRef) -> pb.NodePrepareResourceResponse:
        try:
            record = await self._preparer.prepare(ref)
        except Exception as error:
            return pb.NodePrepareResourceResponse(error=_text(ref, error))
        return pb.NodePrepareResourceResponse(devices=self._devices(record))

    async def _unprepare_one(self, ref: ClaimRef) -> pb.NodeUnprepareResourceResponse:
        try:
            await self._preparer.unprepare(ref)
        except Exception as error:
            return pb.NodeUnprepareResourceResponse(error=_text(ref, error))
        return pb.NodeUnprepareResourceResponse()

    def _devices(self, record: ClaimRecord) -> list[pb.Device]:
        """Devices with their CDI names; ports and direct links are listed without any."""
        devices = [
            pb.Device(
                request_names=[device.base_request],
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=[cdi.device_id(self._driver, record.ref.uid, device)],
                share_id=device.share_id,
            )
            for device in record.devices
        ]
        links = [
            pb.Device(
                request_names=[link.request.partition("/")[0]],
                pool_name=link.pool,
                device_name=link.device,
                share_id=link.share_id,
            )
            for link in record.links
        ]
        return devices + links


async def _waiting(work: Awaitable[T]) -> T:
    return await work


def _ref(claim: pb.Claim) -> ClaimRef:
    return ClaimRef(claim.namespace, claim.name, ClaimUid(claim.uid))


def _text(ref: ClaimRef, error: Exception) -> str:
    """What the pod's owner reads: our own errors as they are, others by kind, never empty."""
    if isinstance(error, UsbdraError):
        return f"{error.reason}: {error}"
    log.error("%s: unexpected error", ref, exc_info=error)
    return f"Internal: {type(error).__name__}: {error}"
