# SPDX-License-Identifier: Apache-2.0
"""A cluster by hand, with the driver installed or without.

    python -m tests.cluster [--driver]          until Ctrl-C
    python -m tests.cluster up [--driver]       left running, for USBDRA_CLUSTER=running pytest ...
    python -m tests.cluster install             the driver, onto a cluster left running
    python -m tests.cluster refresh             this checkout's code and chart into it
    python -m tests.cluster kubectl WORDS...
    python -m tests.cluster run NODE COMMAND... a shell command on a node
    python -m tests.cluster status              the names of all: USBDRA_CLUSTER=NAME picks one
    python -m tests.cluster down [NAME...]
    python -m tests.cluster build               what beds are made of, into the cache
    python -m tests.cluster sbom FILE           what the driver's image holds (CycloneDX)

Owns the command line of the bed, nothing of the bed itself.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.bed.clusterbin import cluster_binary, helm_binary
from tests.bed.errors import BedError
from tests.bed.instance import named, remove
from tests.bed.progress import say, step
from tests.cluster import driver
from tests.cluster.bed import ClusterBed, ClusterSpec, adopted, left_running
from tests.cluster.payload import payload_image
from tests.cluster.refresh import refresh
from tests.cluster.usbdra_image import usbdra_sbom


def gate(text: str) -> tuple[str, bool]:
    """A feature gate as the components take it: NAME=true or NAME=false."""
    name, _, value = text.partition("=")
    if not name or value not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text}: not NAME=true or NAME=false")
    return name, value == "true"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m tests.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    making = argparse.ArgumentParser(add_help=False)
    making.add_argument("--driver", action="store_true", help="install usbdra by its chart")
    making.add_argument("--gate", action="append", type=gate, default=[], metavar="NAME=BOOL")
    commands = top.add_subparsers(dest="command")
    commands.add_parser("here", parents=[making], help="until Ctrl-C (the default)")
    commands.add_parser("up", parents=[making], help="leave a cluster running")
    down = commands.add_parser("down", help="end a cluster started by up, or all of them")
    down.add_argument("names", nargs="*", metavar="NAME", help="as `status` prints it")
    commands.add_parser("status", help="list running clusters")
    commands.add_parser("install", help="install the driver on the running cluster")
    commands.add_parser("refresh", help="this checkout's code and chart into the running agents")
    commands.add_parser("build", help="build what beds are made of, and keep it")
    sbom = commands.add_parser("sbom", help="write what the driver's image holds")
    sbom.add_argument("file", type=Path)
    commands.add_parser("kubectl", help="kubectl on the running cluster")
    run = commands.add_parser("run", help="run a shell command on a node; its status is ours")
    run.add_argument("node")
    run.add_argument("words", nargs=argparse.REMAINDER)
    return top


def _spec(options: argparse.Namespace) -> ClusterSpec:
    gates = dict(options.gate)
    return driver.spec(feature_gates=gates) if options.driver else ClusterSpec(feature_gates=gates)


def _here(options: argparse.Namespace) -> None:
    with ClusterBed(_spec(options)) as bed, contextlib.suppress(KeyboardInterrupt):
        if options.driver:
            driver.install(bed)
        say("the cluster is up; Ctrl-C ends it. In another terminal:")
        say(f"  alias kubectl='{cluster_binary()} kubectl --kubeconfig {bed.api.kubeconfig}'")
        signal.pause()


def _up(options: argparse.Namespace) -> None:
    bed = ClusterBed(_spec(options), detached=True)
    bed.up()
    if options.driver:
        with step("installing the driver"):
            driver.install(bed)
    say(f"up; files in {bed.bed.folder}")
    say("try: python -m tests.cluster kubectl get pods -A")


def _build() -> None:
    """Each says what it does; what the cache has is not made again."""
    cluster_binary()
    helm_binary()
    payload_image()
    driver.spec()
    say("what beds are made of is there")


def _kubectl(bed: ClusterBed, words: list[str]) -> int:
    command = [str(cluster_binary()), "kubectl", f"--kubeconfig={bed.api.kubeconfig}", *words]
    return subprocess.run(command, check=False).returncode


def _run(bed: ClusterBed, node: str, command: str) -> int:
    if node not in bed.nodes:
        raise BedError(f"no node {node}; there are {', '.join(bed.nodes)}")
    result = bed.machine(node).run(command, timeout=600, check=False)
    sys.stdout.write(result.out)
    sys.stderr.write(result.err)
    return result.rc


def main(argv: list[str]) -> int:
    """Run one command; returns the exit status."""
    if not argv or argv[0] in ("--driver", "--gate"):
        argv = ["here", *argv]
    # kubectl's own options are not for us, in whichever place they are
    words = argv[1:] if argv[0] == "kubectl" else []
    options = parser().parse_args(argv[:1] if words else argv)
    try:
        match options.command:
            case "here":
                _here(options)
            case "up":
                _up(options)
            case "status":
                for folder in left_running():
                    print(folder)
            case "down":
                for folder in named(left_running(), options.names):
                    remove(folder)
                    say(f"{folder.name} is gone")
            case "build":
                _build()
            case "sbom":
                shutil.copy(usbdra_sbom(driver.VERSION), options.file)
            case "install":
                with adopted() as bed:
                    driver.install(bed)
            case "refresh":
                with adopted() as bed:
                    refresh(bed)
            case "kubectl":
                with adopted() as bed:
                    return _kubectl(bed, words)
            case "run":
                with adopted() as bed:
                    return _run(bed, options.node, " ".join(options.words))
    except BedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
