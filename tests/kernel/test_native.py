# SPDX-License-Identifier: Apache-2.0
"""The native core of the installed wheel on the real files of both kernels."""

import json
from pathlib import Path

from tests.bed.node import Node
from tests.contract import native_bodies

BODIES = Path(native_bodies.__file__)
RUN = """
import json, sys
sys.path.insert(0, "/run/bed")
import native_bodies
print(json.dumps(native_bodies.run_real()))
"""


def test_every_promise_holds_on_the_real_kernel(node: Node) -> None:
    node.push(BODIES, "/run/bed/native_bodies.py")
    names = [body.__name__ for body in (*native_bodies.COMMON, *native_bodies.REAL_ONLY)]
    assert json.loads(node.python(RUN, timeout=120).out) == names
