# SPDX-License-Identifier: Apache-2.0
"""Device nodes and links in the /dev of a running container.

Owns the way there and what is made. The container writes that directory too and may put anything
in the way: no step follows a link or leaves the file system of its /dev, and what exists is only
replaced when it is a device node. Must not decide what a container gets.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from usbdra.containers.processes import read_at
from usbdra.containers.rules import DeviceNumber
from usbdra.errors import KernelUnsupported, NotFound, Refused

DEV = PurePosixPath("/dev")
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_EVERYBODY = ["0", "0", "4294967295"]
_TEMPORARY = ".usbdra.new"


@dataclass(frozen=True, slots=True)
class Node:
    """A device node as a container shall see it. uid, gid: None for its first process' own."""

    path: PurePosixPath
    number: DeviceNumber
    mode: int
    uid: int | None = None
    gid: int | None = None


class ContainerDev:
    """The /dev of one container; see `opened`."""

    def __init__(self, top: int, owner: tuple[int, int]) -> None:
        """Borrows top, the descriptor of the directory."""
        self._top = top
        self._device = os.fstat(top).st_dev
        self._owner = owner

    def put(self, node: Node) -> bool:
        """Have this node there; whether it was not. A node of another number gives way.

        Raises Refused when something else is in the way.
        """
        with self._directory(node.path, make=True) as where:
            if _is(where, node.path.name, node.number):
                return False
            _require_replaceable(where, node.path)
            kind = stat.S_IFBLK if node.number.block else stat.S_IFCHR
            with suppress(FileNotFoundError):
                os.unlink(_TEMPORARY, dir_fd=where)
            device = os.makedev(node.number.major, node.number.minor)
            os.mknod(_TEMPORARY, kind, device, dir_fd=where)
            uid, gid = self._owner
            made = os.open(_TEMPORARY, _STEP, dir_fd=where)
            try:  # by the descriptor: the name may be a link by now
                os.chown(
                    f"/proc/self/fd/{made}",
                    uid if node.uid is None else node.uid,
                    gid if node.gid is None else node.gid,
                )
                os.chmod(f"/proc/self/fd/{made}", node.mode)
            finally:
                os.close(made)
            os.rename(_TEMPORARY, node.path.name, src_dir_fd=where, dst_dir_fd=where)
        return True

    def link(self, path: PurePosixPath, target: PurePosixPath) -> None:
        """Have a link there. Raises Refused when something else is in the way."""
        with self._directory(path, make=True) as where:
            facts = _facts(where, path.name)
            if facts is not None and not stat.S_ISLNK(facts.st_mode):
                raise Refused(f"{path} is there already, and no link")
            with suppress(FileNotFoundError):
                os.unlink(_TEMPORARY, dir_fd=where)
            os.symlink(target, _TEMPORARY, dir_fd=where)
            os.rename(_TEMPORARY, path.name, src_dir_fd=where, dst_dir_fd=where)

    def remove(self, path: PurePosixPath, number: DeviceNumber) -> None:
        """Remove this node; one of another number, or something else, stays."""
        with suppress(FileNotFoundError), self._directory(path) as where:
            if _is(where, path.name, number):
                os.unlink(path.name, dir_fd=where)

    def remove_links(self, directory: PurePosixPath) -> None:
        """Remove a directory of links of ours; what else is in it stays, and the directory too."""
        with suppress(FileNotFoundError), self._directory(directory / "x") as where:
            for name in os.listdir(_readable(where)):
                facts = _facts(where, name)
                if facts is not None and stat.S_ISLNK(facts.st_mode):
                    os.unlink(name, dir_fd=where)
        with suppress(FileNotFoundError), self._directory(directory) as where:
            try:
                os.rmdir(directory.name, dir_fd=where)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.ENOENT):
                    raise

    @contextmanager
    def _directory(self, path: PurePosixPath, *, make: bool = False) -> Iterator[int]:
        """The directory that `path` is in. Raises Refused for a way that leaves /dev,
        FileNotFoundError."""
        steps = path.relative_to(DEV).parts[:-1]
        if ".." in path.parts:
            raise Refused(f"{path} leaves /dev")
        at = os.dup(self._top)
        try:
            for step in steps:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(step, 0o755, dir_fd=at)
                try:
                    found = os.open(step, _STEP | os.O_DIRECTORY, dir_fd=at)
                except NotADirectoryError:
                    raise Refused(f"{step} on the way to {path} is no directory") from None
                os.close(at)
                at = found
                if os.fstat(at).st_dev != self._device:
                    raise Refused(f"{step} on the way to {path} is mounted by the container")
            yield at
        finally:
            os.close(at)


@contextmanager
def opened(process: int, host_dev: int) -> Iterator[ContainerDev | None]:
    """The /dev of the container of this process' directory (processes.py `open`), borrowed.

    host_dev: `st_dev` of the node's own /dev. None when the container has that one mounted, where
    the kernel itself makes nodes. Raises KernelUnsupported for a container with users of its own,
    whose /dev takes no device nodes, NotFound when it is gone.
    """
    users = read_at(process, "uid_map")
    status = read_at(process, "status")
    if users is None or status is None:
        raise NotFound("the container is gone")
    if users.split() != _EVERYBODY:
        raise KernelUnsupported("the container has users of its own (hostUsers: false)")
    root = top = -1
    try:
        root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
        top = os.open(DEV.name, _STEP | os.O_DIRECTORY, dir_fd=root)
        shared = os.fstat(top).st_dev == host_dev
        yield None if shared else ContainerDev(top, _owner(status))
    except ProcessLookupError:
        raise NotFound("the container is gone") from None
    finally:
        for fd in (root, top):
            if fd >= 0:
                os.close(fd)


def _owner(status: str) -> tuple[int, int]:
    """Effective user and group of a process (man 5 proc_pid_status)."""
    lines = [line.split() for line in status.splitlines()]
    found = {fields[0]: int(fields[2]) for fields in lines if fields[:1] in (["Uid:"], ["Gid:"])}
    return found["Uid:"], found["Gid:"]


def _facts(where: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=where, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is(where: int, name: str, number: DeviceNumber) -> bool:
    facts = _facts(where, name)
    is_kind = stat.S_ISBLK if number.block else stat.S_ISCHR
    return (
        facts is not None
        and is_kind(facts.st_mode)
        and facts.st_rdev == os.makedev(number.major, number.minor)
    )


def _require_replaceable(where: int, path: PurePosixPath) -> None:
    facts = _facts(where, path.name)
    if facts is not None and not (stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode)):
        raise Refused(f"{path} is there already, and no device node")


def _readable(fd: int) -> str:
    return f"/proc/self/fd/{fd}"
