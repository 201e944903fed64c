# SPDX-License-Identifier: Apache-2.0
"""A kubelet as a DRA plugin sees it: finds sockets, registers, calls, watches health.

Talks real gRPC over real Unix sockets and keeps to what pkg/kubelet/pluginmanager and
pkg/kubelet/cm/dra of Kubernetes v1.37.2 do: GetInfo, choice of the newest service both sides
know, a dial of the plugin's endpoint, NotifyRegistrationStatus; later calls with all claims of
a pod at once and a time limit of 45 s.

    async with FakeKubelet(registry_dir) as kubelet:
        [info] = await kubelet.scan()
        results = await kubelet.prepare(ref)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from usbdra._pb import dra_health_v1_pb2 as health_v1
from usbdra._pb import dra_health_v1alpha1_pb2 as health_v1alpha1
from usbdra._pb import dra_v1_pb2 as dra_v1
from usbdra._pb import dra_v1beta1_pb2 as dra_v1beta1
from usbdra._pb import plugin_registration_v1_pb2 as registration
from usbdra.state.claims import ClaimRef

CALL_SECONDS = 45.0

DRA: Mapping[str, ModuleType] = {"v1.DRAPlugin": dra_v1, "v1beta1.DRAPlugin": dra_v1beta1}
HEALTH: Mapping[str, ModuleType] = {
    "v1.DRAResourceHealth": health_v1,
    "v1alpha1.DRAResourceHealth": health_v1alpha1,
}


class Refused(Exception):
    """The kubelet does not take this plugin in."""


class FakeKubelet:
    """One kubelet. `services` are the DRA services it knows, newest first."""

    def __init__(
        self,
        registry_dir: Path,
        services: tuple[str, ...] = tuple(DRA),
        health: tuple[str, ...] = tuple(HEALTH),
    ) -> None:
        self._registry_dir = registry_dir
        self._services = services
        self._health = health
        self._channels: list[grpc.aio.Channel] = []
        self.plugins: list[tuple[str, grpc.aio.Channel, registration.PluginInfo]] = []
        """(service chosen, connection, what GetInfo said), the newest registration last."""

    async def __aenter__(self) -> FakeKubelet:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close(None)

    async def scan(self) -> list[registration.PluginInfo]:
        """Register every plugin whose socket is in the registry directory and answers."""
        found = []
        for path in sorted(self._registry_dir.iterdir()):
            try:
                found.append(await self.register(path))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
        return found

    async def register(self, path: Path) -> registration.PluginInfo:
        """GetInfo, checks, NotifyRegistrationStatus; raises Refused as well as telling so."""
        channel = self._connect(path)
        file = registration.DESCRIPTOR
        info: registration.PluginInfo = await _call(
            channel, file, "Registration", "GetInfo", {}, 5.0
        )
        status: dict[str, Any] = {"plugin_registered": True}
        service = next((s for s in self._services if s in info.supported_versions), None)
        if info.type != "DRAPlugin" or service is None:
            status = {"plugin_registered": False, "error": f"no service of {self._services}"}
        await _call(channel, file, "Registration", "NotifyRegistrationStatus", status, 5.0)
        if service is None:
            raise Refused(status["error"])
        self.plugins.append((service, self._connect(Path(info.endpoint)), info))
        return info

    async def prepare(self, *refs: ClaimRef, timeout: float = CALL_SECONDS) -> Mapping[str, Any]:
        """NodePrepareResources of the newest plugin; results by UID, all of them there."""
        return await self._claims("NodePrepareResources", refs, timeout)

    async def unprepare(self, *refs: ClaimRef, timeout: float = CALL_SECONDS) -> Mapping[str, Any]:
        """NodeUnprepareResources of the newest plugin; results by UID, all of them there."""
        return await self._claims("NodeUnprepareResources", refs, timeout)

    async def watch_health(self) -> AsyncIterator[Any]:
        """NodeWatchResources of the newest plugin, in the newest version both sides know."""
        _, channel, info = self.plugins[-1]
        name = next(name for name in self._health if name in info.supported_versions)
        service = HEALTH[name].DESCRIPTOR.services_by_name["DRAResourceHealth"]
        method = service.methods_by_name["NodeWatchResources"]
        request = GetMessageClass(method.input_type)
        stream = channel.unary_stream(
            f"/{name}/{method.name}",
            request_serializer=request.SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )(request())
        try:
            async for answer in stream:
                yield answer
        finally:
            stream.cancel()

    async def _claims(
        self, method: str, refs: tuple[ClaimRef, ...], timeout: float
    ) -> Mapping[str, Any]:
        service, channel, _ = self.plugins[-1]
        claims = [{"namespace": r.namespace, "name": r.name, "uid": r.uid} for r in refs]
        file = DRA[service].DESCRIPTOR
        answer = await _call(channel, file, "DRAPlugin", method, {"claims": claims}, timeout)
        results = dict(answer.claims)
        assert set(results) == {ref.uid for ref in refs}, "the kubelet fails a call that skips one"
        return results

    def _connect(self, path: Path) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(f"unix:{path}")
        self._channels.append(channel)
        return channel


async def _call(
    channel: grpc.aio.Channel,
    file: Any,
    service: str,
    method: str,
    values: Mapping[str, Any],
    timeout: float,
) -> Any:
    found = file.services_by_name[service].methods_by_name[method]
    request = GetMessageClass(found.input_type)
    call = channel.unary_unary(
        f"/{found.containing_service.full_name}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=GetMessageClass(found.output_type).FromString,
    )
    async with asyncio.timeout(timeout + 1):
        return await call(request(**values), timeout=timeout)
