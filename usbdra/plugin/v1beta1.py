# SPDX-License-Identifier: Apache-2.0
"""The DRA service v1beta1, for kubelets that do not know v1: an adapter over it.

Owns the conversion. The messages of both versions have the same fields under the same numbers,
but for the share id that v1beta1 has not (k8s.io/kubelet v0.37.2, pkg/apis/dra/v1beta1).
"""

from __future__ import annotations

from usbdra._pb import dra_v1_pb2 as v1
from usbdra._pb import dra_v1beta1_pb2 as pb
from usbdra.plugin.rpc import Handler, handlers
from usbdra.plugin.service import DraService

NAME = "v1beta1.DRAPlugin"


class BetaService:
    """NodePrepareResources and NodeUnprepareResources of v1beta1."""

    def __init__(self, service: DraService) -> None:
        self._service = service

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
        """As v1, without share ids."""
        newer = v1.NodePrepareResourcesRequest.FromString(request.SerializeToString())
        answer = await self._service.prepare(newer, context)
        for result in answer.claims.values():
            for device in result.devices:
                device.ClearField("share_id")
        return pb.NodePrepareResourcesResponse.FromString(answer.SerializeToString())

    async def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, context: object
    ) -> pb.NodeUnprepareResourcesResponse:
        """As v1."""
        newer = v1.NodeUnprepareResourcesRequest.FromString(request.SerializeToString())
        answer = await self._service.unprepare(newer, context)
        return pb.NodeUnprepareResourcesResponse.FromString(answer.SerializeToString())
