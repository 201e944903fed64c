# SPDX-License-Identifier: Apache-2.0
"""Links whose programs are gone: the kernel itself tells both ends when one breaks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bed.bed import Bed
from tests.bed.node import Node, Process
from tests.kernel.conftest import Pair
from tests.kernel.product import attach, detach, serving
from tests.kernel.test_link import home

pytestmark = pytest.mark.usefixtures("trusted")
PORT = 3241
NOTICED_S = 40.0
"""15 s is what LinkTimeouts allow; emulated nodes are slow."""
WATCH = f"""
import asyncio
from usbdra.transport.watch import LinkWatch, NetlinkEnds

def told(ends):
    text = ends and f"over {{ends.local_port}} {{ends.peer_port}}"
    print(text or "watching", flush=True)

links = LinkWatch(lambda: NetlinkEnds({PORT}))
links.listen(told)
asyncio.run(links.run())
"""


@contextmanager
def watching(node: Node) -> Iterator[Process]:
    """What the node hears of ended links while the block runs."""
    watch = node.start(["/opt/usbdra/bin/python", "-c", WATCH])
    try:
        watch.wait_for("watching")
        yield watch
    finally:
        watch.stop()


def heard(watch: Process, pattern: str) -> str:
    match: re.Match[str] = watch.wait_for(pattern, timeout=NOTICED_S)
    return match[1]


def test_r23_both_ends_hear_of_a_silent_loss_and_of_a_detach(bed: Bed, pair: Pair) -> None:
    exporter, importer = pair.exporter, pair.importer
    exporter.call("gadget.storage", "silent")
    exporter.call("usb.wait", "silent", child="disks")
    with serving(exporter):
        attach(importer, exporter.ip, "silent")
    # The next exporter has no descriptor of the link, and nobody else has one: it gives the device
    # back because the kernel tells it.
    with watching(exporter) as there, watching(importer) as here, serving(exporter):
        bed.network.cut(importer.name)
        try:
            port = heard(here, rf"over (\d+) {PORT}")
            assert heard(there, rf"over {PORT} (\d+)") == port
            exporter.call("usb.wait", "silent", child="disks", seconds=NOTICED_S)
            importer.call("usb.wait_used", 0, seconds=NOTICED_S)
        finally:
            bed.network.restore(importer.name)
        home(exporter, "silent")
        found = attach(importer, exporter.ip, "silent")
        detach(importer, found["port"])
        again = heard(here, rf"over (?!{port}\b)(\d+) {PORT}")
        assert heard(there, rf"over {PORT} (?!{port}\b)(\d+)") == again
        home(exporter, "silent")
