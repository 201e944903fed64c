# SPDX-License-Identifier: Apache-2.0
"""A node that sleeps: its machine stands still, without a word to anybody, and goes on later."""

from __future__ import annotations

import time

import pytest

from tests.kernel.conftest import Pair
from tests.kernel.product import attach, detach, serving
from tests.kernel.test_link import home

pytestmark = pytest.mark.usefixtures("trusted")
NOTICED_S = 40.0
"""15 s is what LinkTimeouts allow; emulated nodes are slow."""


@pytest.mark.parametrize("sleeper", ["importer", "exporter"])
def test_a_node_that_slept_is_served_again(a_to_b: Pair, sleeper: str) -> None:
    exporter, importer = a_to_b.exporter, a_to_b.importer
    exporter.call("gadget.storage", "slept")
    exporter.call("usb.wait", "slept", child="disks")
    with serving(exporter):
        attach(importer, exporter.ip, "slept")
        begun = time.monotonic()
        asleep = getattr(a_to_b, sleeper)
        asleep.vm.freeze()
        try:
            if sleeper == "importer":  # its exporter takes the device back meanwhile
                exporter.call("usb.wait", "slept", child="disks", seconds=NOTICED_S)
            else:
                importer.call("usb.wait_used", 0, seconds=NOTICED_S)
            assert time.monotonic() - begun < NOTICED_S
        finally:
            asleep.vm.thaw()
        importer.call("usb.wait_used", 0, seconds=NOTICED_S)
        home(exporter, "slept")
        found = attach(importer, exporter.ip, "slept")
        importer.call("usb.wait", "slept", imported=True, child="disks")
        detach(importer, found["port"])
        home(exporter, "slept")
