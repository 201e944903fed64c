# SPDX-License-Identifier: Apache-2.0
"""The bed by hand: `python -m tests.bed up|down|status|run NODE COMMAND...|shell NODE`.

Owns the command line for developers. A bed started here lives until `down`.
"""

import argparse
import sys

from tests.bed.bed import Bed, adopt, leave_running
from tests.bed.errors import BedError, CommandTimeout
from tests.bed.instance import detached_beds, named, remove
from tests.bed.kernel_bed import KernelBed
from tests.bed.progress import say


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.bed", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="boot nodes a and b and leave them running")
    up.add_argument("--a", default="6.12", metavar="KERNEL", help="kernel of node a: 6.12, 6.1")
    up.add_argument("--b", default="6.1", metavar="KERNEL", help="kernel of node b")
    up.add_argument("--bare", action="store_true", help="without the project's wheel and tests")
    down = commands.add_parser("down", help="end a bed started by up, or all of them")
    down.add_argument("names", nargs="*", metavar="NAME", help="as `status` prints it")
    commands.add_parser("status", help="list running beds")
    run = commands.add_parser(
        "run", help="run one shell command in a node; its exit status is ours"
    )
    run.add_argument("--timeout", type=float, default=600, help="seconds")
    run.add_argument("node")
    run.add_argument("words", nargs=argparse.REMAINDER)
    shell = commands.add_parser("shell", help="a prompt on a node; each line is one command")
    shell.add_argument("node")
    return top


def _current(node: str) -> Bed:
    """The running bed. Raises BedError when there is none, or it has no such node."""
    found = detached_beds()
    if not found:
        raise BedError("no bed is running; start one with: python -m tests.bed up")
    bed = adopt(found[0])
    if node not in bed.nodes:
        bed.down()
        raise BedError(f"no node {node}; there are {', '.join(bed.nodes)}")
    return bed


def _run(node_name: str, command: str, timeout: float) -> int:
    bed = _current(node_name)
    try:
        result = bed[node_name].run(command, timeout=timeout, check=False)
    finally:
        bed.down()
    sys.stdout.write(result.out)
    sys.stderr.write(result.err)
    return result.rc


def _shell(node_name: str) -> int:
    bed = _current(node_name)
    try:
        while True:
            try:
                line = input(f"{node_name}# ")
                if line.strip():
                    result = bed[node_name].run(line, timeout=600, check=False)
                    print(result.out + result.err, end="")
            except CommandTimeout as e:
                print(e)
    except (EOFError, KeyboardInterrupt):
        print()
        return 0
    finally:
        bed.down()


def _up(a: str, b: str, *, bare: bool) -> int:
    bed = KernelBed(a, b, bare=bare, detached=True)
    bed.up()
    leave_running(bed)
    times = ", ".join(f"{name} in {seconds} s" for name, seconds in bed.boot_seconds.items())
    say(f"up: {times}; files in {bed.folder}")
    say("try: python -m tests.bed run a uname -r")
    return 0


def main(argv: list[str]) -> int:
    """Run one command; returns the exit status."""
    args = parser().parse_args(argv)
    try:
        match args.command:
            case "up":
                return _up(args.a, args.b, bare=args.bare)
            case "run":
                return _run(args.node, " ".join(args.words), args.timeout)
            case "shell":
                return _shell(args.node)
            case "status":
                for folder in detached_beds():
                    print(folder, *(p.parent.name for p in sorted(folder.glob("*/qemu.pid"))))
            case "down":
                for folder in named(detached_beds(), args.names):
                    remove(folder)
                    say(f"{folder.name} is gone")
    except BedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
