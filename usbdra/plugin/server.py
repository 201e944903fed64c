# SPDX-License-Identifier: Apache-2.0
"""The plugin's two gRPC servers: one the kubelet works with, one where it finds us.

Owns their start and stop in the right order. The plugin listens before it can be found, and
cannot be found any more before it stops listening.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import grpc.aio

from usbdra.errors import StateError
from usbdra.plugin import health, service, v1beta1
from usbdra.plugin.health import HealthBoard, HealthService
from usbdra.plugin.registration import RegistrationService
from usbdra.plugin.rpc import Handler
from usbdra.plugin.service import DraService, Preparing
from usbdra.plugin.sockets import SocketPaths, remove_stale
from usbdra.plugin.v1beta1 import BetaService

VERSIONS = (service.NAME, v1beta1.NAME, health.V1, health.V1ALPHA1)
GRACE_SECONDS = 5.0


class PluginServer:
    """Serves one driver on one node."""

    def __init__(
        self,
        driver: str,
        paths: SocketPaths,
        preparer: Preparing,
        board: HealthBoard,
        on_registered: Callable[[], None] | None = None,
    ) -> None:
        """on_registered: called each time a kubelet has registered the plugin."""
        self._driver = driver
        self._paths = paths
        self._board = board
        self._service = DraService(driver, preparer)
        told = {} if on_registered is None else {"on_registered": on_registered}
        self.registration = RegistrationService(driver, paths.plugin, VERSIONS, **told)
        self._servers: list[tuple[grpc.aio.Server, Path]] = []

    async def start(self) -> None:
        """Listen, then let the kubelet find us.

        Raises StateError when a socket cannot be made; nothing is listened on then.
        """
        remove_stale(self._driver, self._paths)
        dra = (
            self._service.handlers(),
            BetaService(self._service).handlers(),
            *HealthService(self._board).handlers(),
        )
        await self._listen(self._paths.plugin, dra)
        await self._listen(self._paths.registration, [self.registration.handlers()])

    def reachable(self) -> bool:
        """Whether a kubelet that starts now would find us: False once somebody has removed the
        sockets, as when its data directory was wiped. They cannot be made again from here: the
        directory of this container's mount may be another than the one of that name now."""
        return all(path.exists() for _, path in self._servers)

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Leave the kubelet's sight, give running calls `grace` seconds, remove the sockets."""
        self._board.close()
        while self._servers:
            server, path = self._servers.pop()
            await server.stop(grace)
            with suppress(OSError):  # gRPC has removed it, or it never was a socket
                path.unlink()
        await self._service.aclose()

    async def _listen(self, path: Path, parts: Iterable[Handler]) -> None:
        try:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            server = grpc.aio.server()
            self._servers.append((server, path))
            server.add_generic_rpc_handlers(tuple(parts))
            server.add_insecure_port(f"unix:{path}")
            await server.start()
        except (OSError, RuntimeError) as error:
            await self.stop(0)
            raise StateError(f"cannot listen on {path}: {error}") from error
