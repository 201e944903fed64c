# SPDX-License-Identifier: Apache-2.0
"""A claim's device in a container that runs: put in, taken out, and kept from what it lost.

Owns what of a device a container gets: its nodes under their own paths, with owner and mode as
configured, and links in `/dev/usbdra/<attachment>/` named as in a claim's own directory. Must not
decide what is plugged in where (plugs.py does) nor how (containers/live.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Protocol

from usbdra.containers.live import Gone, Problem, Wanted
from usbdra.containers.nodes import Node
from usbdra.containers.rules import DeviceNumber
from usbdra.errors import KernelUnsupported, NotFound
from usbdra.plugin import layout
from usbdra.plugin.threads import in_thread
from usbdra.state.claims import DeviceRecord
from usbdra.state.plugs import PlugNode, PlugRecord
from usbdra.types import ClaimUid


class Containers(Protocol):
    """What of containers/live.py is used here; blocks for some milliseconds."""

    def update_claim(self, claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        """Change the containers that have these requests of the claim."""
        ...

    def restart_claim(self, claim: ClaimUid, requests: Collection[str]) -> list[Problem]:
        """End the containers that have one of these requests."""
        ...

    def update(self, pod: str, name: str, wanted: Wanted) -> None:
        """Change one container."""
        ...


def nodes(device: DeviceRecord) -> tuple[PlugNode, ...]:
    """The nodes of a device that a container gets, the device itself first."""
    return tuple(
        PlugNode(link.name, link.path, link.major, link.minor, link.block)
        for link in layout.node_links(device)
    )


class PodPlugs:
    """See module. Without `containers` the agent does not see them, and says so."""

    def __init__(self, containers: Containers | None) -> None:
        self._containers = containers

    async def put_in(self, record: PlugRecord, device: DeviceRecord) -> None:
        """Have the device in the container, and nothing else changed there.

        Raises NotFound when the container does not run, KernelUnsupported, Refused, NotPermitted.
        """
        config = layout.settings(device)
        directory = PurePosixPath(record.directory)
        wanted = Wanted(
            nodes=tuple(
                Node(PurePosixPath(node.path), _number(node), config.mode, config.uid, config.gid)
                for node in record.nodes
            ),
            links={directory / node.name: PurePosixPath(node.path) for node in record.nodes},
        )
        await in_thread(self._known().update, record.pod, record.container, wanted)

    async def take_out(self, record: PlugRecord) -> None:
        """Have it out; a container that is gone has given it back."""
        wanted = Wanted(gone=_gone(record), without=PurePosixPath(record.directory))
        with suppress(NotFound):
            await in_thread(self._known().update, record.pod, record.container, wanted)

    def _known(self) -> Containers:
        if self._containers is None:
            raise KernelUnsupported(
                "the agent does not see running containers; the chart's value "
                "agent.runningContainers lets it"
            )
        return self._containers


class ClaimContainers:
    """Containers of a claim (plugin/running.py), the one that it is plugged into among them.

    A device that is lost is out of that container's reach as soon as of the others; it is given
    again by plugs.py, when the claim has it again.
    """

    def __init__(
        self, containers: Containers, plugged: Callable[[ClaimUid], PlugRecord | None]
    ) -> None:
        self._containers = containers
        self._plugged = plugged

    @classmethod
    def of_node(
        cls, containers: Containers | None, plugged: Callable[[ClaimUid], PlugRecord | None] | None
    ) -> Containers | ClaimContainers | None:
        """With those that attachments name, where devices are plugged in on this node."""
        if containers is None or plugged is None:
            return containers
        return cls(containers, plugged)

    def update_claim(self, claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        """See LiveContainers.update_claim. Raises what its `update` raises, too."""
        problems = self._containers.update_claim(claim, wanted)
        record = self._plugged(claim)
        if record is None or not record.container:
            return problems
        lost = [gone for one in wanted.values() for gone in one.gone]
        gone = tuple(one for one in lost if not self._has(record, one.holder))
        if gone:
            with suppress(NotFound):
                self._containers.update(record.pod, record.container, Wanted(gone=gone))
        return problems

    def _has(self, record: PlugRecord, other: ClaimUid | None) -> bool:
        """Whether another claim is plugged into the same container."""
        found = self._plugged(other) if other is not None else None
        return found is not None and (found.pod, found.container) == (record.pod, record.container)

    def restart_claim(self, claim: ClaimUid, requests: Collection[str]) -> list[Problem]:
        """See LiveContainers.restart_claim."""
        return self._containers.restart_claim(claim, requests)


def _gone(record: PlugRecord) -> tuple[Gone, ...]:
    return tuple(Gone(PurePosixPath(node.path), _number(node)) for node in record.nodes)


def _number(node: PlugNode) -> DeviceNumber:
    return DeviceNumber(node.major, node.minor, node.block)
