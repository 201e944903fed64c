# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in the bed itself, told apart from what a test finds.

Owns the exception tree of tests/bed. Must not import anything else of the bed.
"""


class BedError(Exception):
    """The bed could not do its work; the text says what to look at."""


class HostError(BedError):
    """A program on this machine failed, or is missing."""


class NodeDown(BedError):
    """A node went silent: power lost, kernel oops, or its control server is gone."""


class CommandFailed(BedError):
    """A command in a node ended with another status than the caller accepts."""

    def __init__(self, node: str, argv: list[str], rc: int, out: str, err: str) -> None:
        self.node, self.argv, self.rc, self.out, self.err = node, argv, rc, out, err
        tail = "\n".join(part.rstrip() for part in (out[-4000:], err[-4000:]) if part.strip())
        super().__init__(f"node {node}: {' '.join(argv)[:300]} ended with status {rc}\n{tail}")


class CommandTimeout(BedError):
    """A command in a node did not end in its time; it was killed there."""
