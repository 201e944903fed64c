# SPDX-License-Identifier: Apache-2.0
"""One call of the program: its settings and where its output goes.

Owns what the common options mean and the choice of output form. Must not know any command.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

import click

from usbdra.cli import table

if TYPE_CHECKING:
    from usbdra.config import Settings

FORMATS = ("table", "wide", "json", "yaml")
OBJECT_FORMATS = (*FORMATS, "name")
"""For lists of the API's objects: `name` is what kubectl takes in place of a kind and a name."""
_NUMBER_STARTS = tuple("0123456789+-.~")
LINE_FORMATS = ("table", "json")
"""For commands that print as things happen: lines for people, or one JSON object a line."""


class Invocation:
    """What the user asked for; made once per call and passed to the command."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        """Common options by name, only those given."""

    @property
    def output(self) -> str:
        """The form of the output: one of OBJECT_FORMATS."""
        return str(self.given.get("output", "table"))

    @property
    def machine(self) -> bool:
        """Whether a program reads our output."""
        return self.output in ("json", "yaml")

    @property
    def verbose(self) -> bool:
        """Whether to say more: debug lines, tracebacks of our own errors."""
        return bool(self.given.get("verbose"))

    @property
    def rooted(self) -> bool:
        """Whether another tree than the machine's own is read."""
        return "root" in self.given

    def settings(self, **flags: object) -> Settings:
        """The settings of this call; `flags` are the command's own options by field name.

        Raises ConfigError.
        """
        from usbdra.config import load

        flags["root"] = self.given.get("root")
        return load(flags, os.environ, self.given.get("config"))

    def live_settings(self, **flags: object) -> Settings:
        """As `settings`, for commands that act on the machine. Raises ConfigError with --root."""
        if self.rooted:
            from usbdra.errors import ConfigError

            raise ConfigError("--root is for commands that only read; this one acts on the machine")
        return self.settings(**flags)

    def show(
        self,
        data: object,
        headers: Iterable[str],
        rows: Callable[[bool], Iterable[Iterable[str]]],
        wide: Iterable[str] = (),
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Print a result: data for programs, or a table for people.

        rows: called with True for the wide table, whose columns are headers and then `wide`.
        names: `KIND/NAME` of each object, for commands that list objects.
        """
        if self.output == "name":
            write("".join(f"{table.printable(name)}\n" for name in names()))
        elif self.output == "json":
            write(json.dumps(data, indent=2, ensure_ascii=not _speaks_utf8(sys.stdout)) + "\n")
        elif self.output == "yaml":
            write(to_yaml(data))
        else:
            full = self.output == "wide"
            columns = [*headers, *(wide if full else ())]
            write(table.render(columns, rows(full)))

    def line(self, text: str, data: Mapping[str, object] | None = None) -> None:
        """Print one thing that happened, at once: the text, or the data as a line of JSON.

        With data None the text is for people only.
        """
        if not self.machine:
            write(table.printable(text) + "\n")
        elif data is not None:
            write(json.dumps(data) + "\n")


class ReaderGone(Exception):
    """Whoever read our output has closed it: there is nobody to tell anything."""


def write(text: str) -> None:
    """Write to standard output and flush, so a reader sees whole results at once.

    Raises ReaderGone, which unlike BrokenPipeError click leaves alone.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def to_yaml(data: object) -> str:
    """YAML with keys in our order, nothing abbreviated by anchors, and texts that stay texts.

    Readers disagree on plain `0781` or `1e3`: Go's takes the first for a float, so whatever
    could begin a number, and YAML 1.1's short booleans, are quoted. What does not print is
    escaped: YAML folds the line breaks of Unicode (U+0085, U+2028) into spaces.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        risky = value[:1] in _NUMBER_STARTS or value.lower() in ("y", "n")
        style = '"' if not value.isprintable() else "'" if risky else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    Dumper.add_representer(str, text)
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def colour_wanted(stream: TextIO) -> bool:
    """Colour only on a terminal, and never with NO_COLOR set (no-color.org) or a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """The text in a click colour name where the stream shows colours."""
    return click.style(text, fg=colour) if colour_wanted(stream) else text


def _speaks_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
