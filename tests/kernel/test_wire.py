# SPDX-License-Identifier: Apache-2.0
"""What somebody on the wire between two nodes sees of a disk that is copied over it.

Every packet is captured (AF_PACKET, on the importer's port of the bridge). The disk holds what
looks random, so that nothing else on the wire resembles it, and every 16-byte window of it is
looked for at every place of the capture. The same search over a plain link finds them.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bed.bed import Bed
from tests.kernel.conftest import Pair, tls_stat
from tests.kernel.product import attach, serving

pytestmark = pytest.mark.usefixtures("trusted")
MIB = 1
WINDOW = 16
SERIAL = "unseen-serial"
NAMES = (SERIAL.encode("utf-16-le"), SERIAL.encode())
"""As the device says it, and as our own protocol does."""


def content(seed: str) -> bytes:
    """The same as the guest's raw.fill_from_seed writes."""
    return hashlib.shake_256(seed.encode()).digest(MIB << 20)


def seen(capture: bytes) -> list[float]:
    """Of the windows read and of those written: the part that is somewhere in the capture."""
    contents = [_windows(content(seed)) for seed in ("read", "written")]
    wanted = set().union(*contents)
    places = range(len(capture) - WINDOW + 1)
    found = {part for at in places if (part := capture[at : at + WINDOW]) in wanted}
    return [len(found & windows) / len(windows) for windows in contents]


def _windows(disk: bytes) -> set[bytes]:
    windows = {disk[at : at + WINDOW] for at in range(0, len(disk), WINDOW)}
    assert len(windows) == len(disk) // WINDOW, "the content repeats itself"
    return windows


@contextmanager
def copied(pair: Pair, bed: Bed, file: Path, *flags: str) -> Iterator[None]:
    """A disk is read over a link and written over it; the block runs while the link is there."""
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", SERIAL)
    device = exporter.call("usb.wait", SERIAL, child="disks")
    exporter.call("raw.fill_from_seed", device["disks"][0], MIB, "read")
    wanted = device["busid"] if "--plain" in flags else SERIAL
    with bed.network.capture(importer.name, file, only=""), serving(exporter, *flags):
        attach(importer, exporter.ip, wanted, *flags)
        disk = importer.call("usb.find", SERIAL, imported=True)["disks"][0]
        read = importer.call("raw.read_sha256", disk, MIB)["sha256"]
        assert read == hashlib.sha256(content("read")).hexdigest()
        importer.call("raw.fill_from_seed", disk, MIB, "written")
        yield
        importer.call("usb.detach_all")
        disk = exporter.call("usb.wait", SERIAL, child="disks")["disks"][0]
    written = exporter.call("raw.read_sha256", disk, MIB)["sha256"]
    assert written == hashlib.sha256(content("written")).hexdigest()


def test_nothing_of_the_disk_is_on_the_wire(bed: Bed, pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "encrypted.pcap"
    nodes = (pair.exporter, pair.importer)
    before = {node: tls_stat(node) for node in nodes}
    with copied(pair, bed, file):
        for node in nodes:
            stat = tls_stat(node)
            assert (stat["TlsCurrTxSw"], stat["TlsCurrRxSw"]) == (1, 1)
            assert stat["TlsDecryptError"] == before[node]["TlsDecryptError"]
    capture = file.read_bytes()
    assert len(capture) > 2 * MIB << 20, "the disk went over the wire twice"
    assert seen(capture) == [0, 0]
    for text in NAMES:
        assert text not in capture


def test_the_same_search_finds_all_of_a_plain_link(bed: Bed, tmp_path: Path) -> None:
    file = tmp_path / "plain.pcap"
    with copied(Pair(bed["a"], bed["b"]), bed, file, "--plain"):
        pass
    capture = file.read_bytes()
    # A window that one packet ends in and the next goes on with is not found.
    assert min(seen(capture)) > 0.95
    assert NAMES[0] in capture
