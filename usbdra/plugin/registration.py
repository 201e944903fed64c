# SPDX-License-Identifier: Apache-2.0
"""How the kubelet gets to know the plugin: it finds the socket and asks.

Owns the registration service and what the kubelet said last. Nothing here waits for the
kubelet: it may come at once, after a minute, or again after its own restart. Source:
k8s.io/kubelet v0.37.2, pkg/apis/pluginregistration/v1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from usbdra._pb import plugin_registration_v1_pb2 as pb
from usbdra.plugin.rpc import Handler, handlers

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"


def _nothing() -> None:
    """Nobody wants to know."""


class RegistrationService:
    """GetInfo and NotifyRegistrationStatus."""

    def __init__(
        self,
        driver: str,
        endpoint: Path,
        versions: Sequence[str],
        on_registered: Callable[[], None] = _nothing,
    ) -> None:
        """on_registered: called each time the kubelet has taken the plugin in."""
        self._driver = driver
        self._endpoint = endpoint
        self._versions = versions
        self._on_registered = on_registered
        self.registered = False
        self.error = ""

    def handlers(self) -> Handler:
        """What a gRPC server adds to serve this service."""
        return handlers(
            pb.DESCRIPTOR,
            "Registration",
            {"GetInfo": self.get_info, "NotifyRegistrationStatus": self.notify},
        )

    async def get_info(self, request: pb.InfoRequest, context: object) -> pb.PluginInfo:
        """Who we are and where the kubelet reaches us."""
        return pb.PluginInfo(
            type=PLUGIN_TYPE,
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=self._versions,
        )

    async def notify(
        self, request: pb.RegistrationStatus, context: object
    ) -> pb.RegistrationStatusResponse:
        """What the kubelet made of it. A refusal is reported; the kubelet asks again by itself."""
        self.registered = request.plugin_registered
        self.error = request.error
        if request.plugin_registered:
            log.info("registered with the kubelet as %s", self._driver)
            self._on_registered()
        else:
            log.error("the kubelet did not register %s: %s", self._driver, request.error)
        return pb.RegistrationStatusResponse()
