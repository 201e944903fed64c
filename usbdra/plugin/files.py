# SPDX-License-Identifier: Apache-2.0
"""A claim's files on the host: CDI spec, directory of links, metadata.

Owns writing and removing them, and the list of claims that have any. Must not decide what a
claim gets (layout.py, cdi.py, metadata.py do) and must not touch the kernel.

Below the claims directory, by default /dev/usbdra (devtmpfs: gone at reboot like the numbers it
holds, and device nodes may be put there for running containers), each claim has

    <uid>/links/<request>/device -> /dev/bus/usb/005/002
    <uid>/metadata/<request>.json

Directories of links are changed in place, entry by entry, because running containers have them
mounted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from usbdra.errors import AttachFailed, StateError
from usbdra.plugin import cdi, layout, metadata
from usbdra.plugin.layout import NodeLink
from usbdra.state.claims import ClaimRecord
from usbdra.types import ClaimUid

CDI_DIR = Path("/var/run/cdi")
CLAIMS_DIR = Path("/dev/usbdra")

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")

NodeCheck = Callable[[NodeLink], None]


def check_node(link: NodeLink) -> None:
    """Raise AttachFailed unless the path is a device node of this very type and number."""
    try:
        found = os.stat(link.path)
    except OSError as error:
        raise AttachFailed(f"device node {link.path} cannot be used: {error}") from error
    is_kind = stat.S_ISBLK if link.block else stat.S_ISCHR
    if not is_kind(found.st_mode):
        kind = "block" if link.block else "character"
        raise AttachFailed(f"{link.path} is not a {kind} device node")
    numbers = (os.major(found.st_rdev), os.minor(found.st_rdev))
    if numbers != (link.major, link.minor):
        raise AttachFailed(
            f"device node {link.path} has number {numbers[0]}:{numbers[1]}, "
            f"not {link.major}:{link.minor}"
        )


class ClaimFiles:
    """The files of this driver's claims. Methods block on file I/O for a moment."""

    def __init__(
        self,
        driver: str,
        cdi_dir: Path = CDI_DIR,
        claims_dir: Path = CLAIMS_DIR,
        check: NodeCheck = check_node,
    ) -> None:
        self._driver = driver
        self._cdi_dir = cdi_dir
        self._claims_dir = claims_dir
        self._check = check

    def write(self, record: ClaimRecord) -> None:
        """Make the claim's files say what its record says, whatever was there.

        The CDI spec comes last, so that who can see it finds everything it mounts. Raises
        AttachFailed when a node is not what the record says, StateError when a file cannot be
        written or the record is damaged.
        """
        own = self._claim_dir(record.ref.uid)
        with _explained(f"files of {record.ref}"):
            for device in record.devices:
                for link in layout.node_links(device):
                    self._check(link)
            self._write_links(record, own)
            for request in metadata.requests(record):
                text = metadata.content(self._driver, record, request)
                _write_file(Path(cdi.metadata_file(PurePosixPath(own), request)), text)
            _write_file(self._spec_path(record.ref.uid), self._spec_text(record))

    def is_written(self, record: ClaimRecord) -> bool:
        """Whether the CDI spec is there and says what the record says today."""
        try:
            return self._spec_path(record.ref.uid).read_text() == self._spec_text(record)
        except (OSError, ValueError):
            return False

    def remove(self, uid: ClaimUid) -> None:
        """Remove the spec, then what it mounts; nothing there is success. Raises StateError."""
        with _explained(f"files of claim {uid}"):
            self._spec_path(uid).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.rmtree(self._claim_dir(uid))

    def claims(self) -> dict[ClaimUid, ClaimRecord | None]:
        """Every claim that has a spec or a directory here, with the record its spec was made from.

        None where the spec is missing or cannot be understood. Raises StateError.
        """
        with _explained(f"files of {self._driver}"):
            specs = {cdi.uid_of_file(self._driver, name) for name in _names(self._cdi_dir)}
            found = {uid for uid in specs if uid} | set(map(ClaimUid, _names(self._claims_dir)))
            return {uid: self._recorded(uid) for uid in sorted(found) if _UID.fullmatch(uid)}

    def _recorded(self, uid: ClaimUid) -> ClaimRecord | None:
        try:
            record = cdi.read_record(self._driver, json.loads(self._spec_path(uid).read_bytes()))
        except (OSError, ValueError, RecursionError):
            return None
        return record if record.ref.uid == uid else None

    def _write_links(self, record: ClaimRecord, own: Path) -> None:
        wanted: dict[Path, dict[str, str]] = {}
        for device in record.devices:
            directory = Path(cdi.links_dir(PurePosixPath(own), device))
            if device.held is None and not device.exclusive:
                continue  # what is looked at has links only while it is here
            wanted.setdefault(directory, {})
            links = {link.name: link.path for link in layout.node_links(device)}
            wanted.setdefault(directory / layout.subdirectory(device), {}).update(links)
        for directory, links in wanted.items():
            directory.mkdir(parents=True, exist_ok=True)
            _set_links(directory, links)

    def _spec_text(self, record: ClaimRecord) -> str:
        own = PurePosixPath(self._claim_dir(record.ref.uid))
        return json.dumps(cdi.build_spec(self._driver, record, own)) + "\n"

    def _spec_path(self, uid: ClaimUid) -> Path:
        return self._cdi_dir / cdi.file_name(self._driver, self._checked(uid))

    def _claim_dir(self, uid: ClaimUid) -> Path:
        return self._claims_dir / self._checked(uid)

    def _checked(self, uid: ClaimUid) -> ClaimUid:
        if not _UID.fullmatch(uid):
            raise StateError(f"claim UID {uid!r} cannot name a file")
        return uid


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise StateError(f"{what}: {error}") from error


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _set_links(directory: Path, links: Mapping[str, str]) -> None:
    """Each link replaced in one step; links that are not wanted any more go."""
    for name in _names(directory):
        if name not in links and (directory / name).is_symlink():
            (directory / name).unlink()
    for name, target in links.items():
        temporary = directory / f".{name}.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        os.rename(temporary, directory / name)


def _write_file(path: Path, text: str) -> None:
    """Whole or not at all; the temporary name does not end in .json, which runtimes read."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text)
        temporary.chmod(0o644)
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
