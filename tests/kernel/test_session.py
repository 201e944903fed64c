# SPDX-License-Identifier: Apache-2.0
"""Binding, sessions, attach and detach of the installed wheel on both real kernels."""

import json
from pathlib import Path

from tests.bed.node import Node
from tests.contract import session_bodies

BODIES = Path(session_bodies.__file__)
RUN = """
import json, sys
sys.path.insert(0, "/run/bed")
import session_bodies
print(json.dumps(session_bodies.run_real(sys.argv[1], "/run/bed/journal")))
"""


def test_every_promise_holds_on_the_real_kernel(node: Node) -> None:
    node.call("gadget.storage", "contract")
    busid = node.call("usb.wait", "contract", child="disks")["busid"]
    node.push(BODIES, "/run/bed/session_bodies.py")
    # An entry that was never bound stays for good (docs/kernel-facts.md): other tests leave some.
    before = node.call("usb.matched")
    took = json.loads(node.python(RUN, busid, timeout=300).out)
    assert list(took) == [body.__name__ for body in session_bodies.BODIES]
    assert node.call("usb.matched") == before
