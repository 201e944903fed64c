# SPDX-License-Identifier: Apache-2.0
"""`kubectl_complete-usb`: what kubectl asks for the words that can follow `kubectl usb ...`.

Owns kubectl's protocol: arguments are the words so far, the last one incomplete; a candidate a
line, a tab before its help; the last line is a colon and cobra's directive. kubectl's completion
scripts for bash, zsh and fish all ask this way (kubectl 1.26 and later).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

NO_FILES, FILES = 4, 0
"""cobra's ShellCompDirectiveNoFileComp and ShellCompDirectiveDefault."""


def main() -> NoReturn:
    """Answer kubectl and end the process; never with an error, which a shell would show."""
    with suppress(OSError):  # the shell may be gone
        print("\n".join(answer(sys.argv[1:])), flush=True)
    sys.exit(0)


def answer(arguments: Sequence[str]) -> Iterator[str]:
    """The lines for these words."""
    from click.shell_completion import ShellComplete

    from usbdra.cli.kubectl.program import program

    *before, incomplete = arguments or ("",)
    completer = ShellComplete(program, {}, "kubectl usb", "")
    directive = NO_FILES
    for item in completer.get_completions(before, incomplete):
        if item.type in ("file", "dir"):
            directive = FILES
        else:
            help_text = f"\t{item.help}" if item.help else ""
            yield f"{item.value}{help_text}"
    yield f":{directive}"
