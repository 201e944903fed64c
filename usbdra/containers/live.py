# SPDX-License-Identifier: Apache-2.0
"""Devices of running containers: given and taken away without a restart.

Owns the order of both. To give: the device program first, then the node. To take: the program
first too, for a container with CAP_MKNOD makes a node of any number by itself (R60). Must not
know records or the API; everything here is idempotent and blocks for some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from usbdra.containers import gate, mounts, nodes
from usbdra.containers.gate import Bpf, Change
from usbdra.containers.nodes import Node
from usbdra.containers.processes import Container, Processes
from usbdra.containers.rules import READ_WRITE, DeviceNumber
from usbdra.containers.scopes import Scopes, unit_of
from usbdra.errors import KernelUnsupported, NotFound, UsbdraError
from usbdra.types import ClaimUid


@dataclass(frozen=True, slots=True)
class Gone:
    """A node that a container had. holder: the claim that has the number now, if one does: its
    containers keep it, also one that has both claims."""

    path: PurePosixPath
    number: DeviceNumber
    holder: ClaimUid | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be different in a container. What is neither here nor there stays as it is."""

    nodes: tuple[Node, ...] = ()
    gone: tuple[Gone, ...] = ()
    links: Mapping[PurePosixPath, PurePosixPath] | None = None
    """Links to be made, with their targets."""
    access: int = READ_WRITE
    without: PurePosixPath | None = None
    """A directory of links to be removed."""

    @property
    def change(self) -> Change:
        """The part of the device program. A number that is given now is not taken as well."""
        allow = {node.number: self.access for node in self.nodes}
        return Change(allow, {gone.number for gone in self.gone} - allow.keys())

    def beside(self, claims: Collection[ClaimUid]) -> Wanted:
        """The same in a container that has these claims."""
        return replace(self, gone=tuple(g for g in self.gone if g.holder not in claims))


@dataclass(frozen=True, slots=True)
class Problem:
    """A container that could not be changed, and why."""

    container: Container
    error: UsbdraError


class LiveContainers:
    """The running containers of this node. cgroups: where the hierarchy of version 2 is mounted;
    claims_dir: where claims have their directories; dev: the node's own /dev; scopes: those of the
    host's systemd, None where it is not told."""

    def __init__(
        self,
        processes: Processes,
        *,
        scopes: Scopes | None = None,
        cgroups: Path = Path("/sys/fs/cgroup"),
        claims_dir: Path = Path("/dev/usbdra"),
        dev: Path = Path("/dev"),
        mountinfo: Path = Path("/proc/self/mountinfo"),
        bpf: Bpf | None = None,
    ) -> None:
        self._processes = processes
        self._scopes = scopes
        self._cgroups = cgroups
        self._claims_dir = claims_dir
        self._dev = dev
        self._mountinfo = mountinfo
        self._bpf = bpf

    @classmethod
    def of_host(cls, proc: Path | None, claims_dir: Path) -> LiveContainers | None:
        """Those of the host whose /proc is there; None where the agent is not to see them."""
        if proc is None:
            return None
        return cls(Processes(proc), scopes=Scopes.of_host(proc), claims_dir=claims_dir)

    def update_claim(self, claim: ClaimUid, wanted: Mapping[str, Wanted]) -> list[Problem]:
        """Change every container that was given one of these requests of the claim.

        Returns those that could not be changed. Raises KernelUnsupported when it is not known
        which containers have claims.
        """
        source = self._source()
        problems = []
        for container in self._processes.containers():
            given = self._processes.given(container, source)
            requests = {g.request for g in given if g.claim == claim} & wanted.keys()
            claims = {g.claim for g in given}
            changes = [wanted[name].beside(claims) for name in sorted(requests)]
            problems += self._tried(container, changes)
        return problems

    def restart_claim(self, claim: ClaimUid, requests: Collection[str]) -> list[Problem]:
        """End every container that was given one of these requests: its pod starts it again.

        Returns those that could not be ended. Raises KernelUnsupported as `update_claim`.
        """
        source = self._source()
        problems = []
        for container in self._processes.containers():
            given = self._processes.given(container, source)
            if any(g.claim == claim and g.request in requests for g in given):
                try:
                    self._kill(container)
                except KernelUnsupported as error:
                    problems.append(Problem(container, error))
        return problems

    def update(self, pod: str, name: str, wanted: Wanted) -> None:
        """Change one container of a pod.

        Raises NotFound when it does not run here, KernelUnsupported, Refused, NotPermitted.
        """
        container = self._processes.container(pod, name)
        if container is None:
            raise NotFound(f"container {name[:12]} of pod {pod} does not run on this node")
        self._change(container, wanted)

    def _kill(self, container: Container) -> None:
        """All processes at once, by the kernel (Documentation/admin-guide/cgroup-v2.rst). No
        number of a process is used, so no other one is met that has it by now."""
        cgroup = self._cgroups / container.cgroups[0].lstrip("/")
        try:
            fd = os.open(cgroup / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"1")
            finally:
                os.close(fd)
        except FileNotFoundError as error:
            if cgroup.exists():  # else it has ended by itself
                raise KernelUnsupported("the kernel is older than 5.14: no cgroup.kill") from error
        except OSError as error:
            raise KernelUnsupported(f"cgroup.kill: {error.strerror}") from error

    def _tried(self, container: Container, wanted: Iterable[Wanted]) -> list[Problem]:
        problems: list[Problem] = []
        for one in wanted:
            try:
                self._change(container, one)
            except NotFound:  # it ended meanwhile, and has nothing
                return problems
            except UsbdraError as error:
                problems.append(Problem(container, error))
        return problems

    def _change(self, container: Container, wanted: Wanted) -> None:
        unit = unit_of(container.cgroups[0])
        if self._scopes is not None and unit is not None and wanted.change.allow:
            self._scopes.allow(unit, wanted.change.allow)
        paths = [self._cgroups / path.lstrip("/") for path in container.cgroups]
        gate.change([p for p in paths if p is paths[0] or p.exists()], wanted.change, bpf=self._bpf)
        process = self._processes.open(container)
        if process is None:
            raise NotFound("the container is gone")
        try:
            self._change_nodes(process, wanted)
        except OSError as error:
            raise KernelUnsupported(f"/dev of container {container.name[:12]}: {error}") from error
        finally:
            os.close(process)

    def _change_nodes(self, process: int, wanted: Wanted) -> None:
        with nodes.opened(process, os.stat(self._dev).st_dev) as dev:
            if dev is None:
                return
            for gone in wanted.gone:
                dev.remove(gone.path, gone.number)
            if wanted.without is not None:
                dev.remove_links(wanted.without)
            for node in wanted.nodes:
                dev.put(node)
            for path, target in (wanted.links or {}).items():
                dev.link(path, target)

    def _source(self) -> mounts.Source:
        text = self._mountinfo.read_text(errors="surrogateescape")
        found = mounts.source(text, PurePosixPath(self._claims_dir))
        if found is None:
            raise KernelUnsupported(f"no file system is known for {self._claims_dir}")
        return found
