# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cluster`: a cluster to work with by hand, until Ctrl-C.

    python -m tests.cluster [--driver] [--gate NAME=true|false ...]

Owns the command line of the bed, nothing of the bed itself.
"""

from __future__ import annotations

import argparse
import contextlib
import signal

from tests.bed.clusterbin import cluster_binary
from tests.bed.progress import say
from tests.cluster import driver
from tests.cluster.bed import ClusterBed, ClusterSpec


def gate(text: str) -> tuple[str, bool]:
    """A feature gate as the components take it: NAME=true or NAME=false."""
    name, _, value = text.partition("=")
    if not name or value not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text}: not NAME=true or NAME=false")
    return name, value == "true"


def main() -> None:
    """Bring the cluster up, say how to reach it, and take it down at Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("--driver", action="store_true", help="install usbdra by its chart")
    parser.add_argument("--gate", action="append", type=gate, default=[], metavar="NAME=BOOL")
    options = parser.parse_args()
    gates = dict(options.gate)
    spec = driver.spec(feature_gates=gates) if options.driver else ClusterSpec(feature_gates=gates)
    with ClusterBed(spec) as bed, contextlib.suppress(KeyboardInterrupt):
        if options.driver:
            driver.install(bed)
        say("the cluster is up; Ctrl-C ends it. In another terminal:")
        say(f"  alias kubectl='{cluster_binary()} kubectl --kubeconfig {bed.api.kubeconfig}'")
        signal.pause()


if __name__ == "__main__":
    main()
