# SPDX-License-Identifier: Apache-2.0
"""Entry point of the `usbdra` program: run a command, turn what went wrong into one clear line.

Owns exit codes and the form of error messages (docs/cli.md). Knows no command.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from usbdra.cli.group import program
from usbdra.cli.invocation import Invocation, ReaderGone
from usbdra.cli.table import printable
from usbdra.errors import ConfigError, NotPermitted, UsbdraError

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class _Bug(UsbdraError):
    """An exception nobody raised on purpose."""

    reason = "InternalError"
    exit_code = 70


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the program with these arguments, sys.argv without any, and end the process."""
    sys.exit(run(argv))


def run(
    argv: Sequence[str] | None = None, group: click.Group = program, name: str = "usbdra"
) -> int:
    """Run a program and return its exit code; messages go to standard error."""
    invocation = Invocation()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = group.main(arguments, prog_name=name, standalone_mode=False, obj=invocation)
    except ReaderGone:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        if "output" not in invocation.given:  # the slip was met before the options were looked at
            invocation.given.update(_output_in(arguments))
        return _usage(error, invocation)
    except Exception as error:
        return _failed(error, invocation)
    return code if isinstance(code, int) else 0


def _output_in(arguments: Sequence[str]) -> dict[str, str]:
    """The `output` that unparsed arguments ask for; empty when none does."""
    found = {}
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word in ("-o", "--output"):
            found["output"] = following
        elif word.startswith(("-o", "--output=")):
            found["output"] = word.removeprefix("--output=").removeprefix("-o")
    return found


def _usage(error: click.UsageError, invocation: Invocation) -> int:
    message = error.format_message()
    if error.ctx is not None:
        message += f" (see: {error.ctx.command_path} --help)"
    return report(ConfigError(message), invocation)


def _failed(error: Exception, invocation: Invocation) -> int:
    if invocation.verbose:
        import traceback

        traceback.print_exc()
    if isinstance(error, UsbdraError):
        return report(error, invocation)
    if isinstance(error, click.ClickException):
        return report(UsbdraError(error.format_message()), invocation)
    if isinstance(error, OSError):
        return report(_from_system(error), invocation)
    return report(
        _Bug(f"internal error: {type(error).__name__}: {error}; -v shows where"), invocation
    )


def _from_system(error: OSError) -> UsbdraError:
    place = f": {os.fsdecode(error.filename)}" if error.filename else ""
    text = f"{error.strerror or error}{place}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotPermitted(f"{text}; this needs root (CAP_SYS_ADMIN and write access to /sys)")
    return UsbdraError(text)


def report(error: UsbdraError, invocation: Invocation) -> int:
    """Write the error as one line, text or JSON, and return its exit code."""
    message = str(error) or error.reason
    if invocation.machine:
        import json

        detail = {"reason": error.reason, "message": message, "exitCode": error.exit_code}
        text = json.dumps({"error": detail})
    else:
        text = f"usbdra: {printable(message)}"
    with suppress(OSError):  # nobody may be left to tell; the exit code still says it
        print(text, file=sys.stderr, flush=True)
    return error.exit_code


def _drop_output() -> None:
    """Whoever read our output is gone: let the interpreter's last flush go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
