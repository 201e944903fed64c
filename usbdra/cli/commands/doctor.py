# SPDX-License-Identifier: Apache-2.0
"""`usbdra doctor`."""

from __future__ import annotations

import sys
from typing import Any

import click

from usbdra.cli import checks
from usbdra.cli.checks import Finding, Level
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, paint, pass_invocation, write
from usbdra.cli.table import printable
from usbdra.errors import KernelUnsupported

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command("doctor")
@common_options()
@pass_invocation
def doctor_command(invocation: Invocation) -> int:
    """Check this node and say what to do about what is missing.

    Ends with 0 when nothing failed (warnings are allowed), else with 6. Changes nothing.
    """
    found = list(checks.run(invocation.settings(), rooted=invocation.rooted))
    failed = sum(one.level is Level.FAIL for one in found)
    if invocation.machine:
        invocation.show([_json(one) for one in found], (), lambda wide: ())
    else:
        for one in found:
            _tell(one)
        text = f"{failed} of {len(found)} checks failed" if failed else "this node is ready"
        write(text + "\n")
    return KernelUnsupported.exit_code if failed else 0


def _tell(one: Finding) -> None:
    mark = paint(f"{one.level.value:4}", _COLOURS[one.level], sys.stdout)
    write(f"{mark}  {one.check}: {printable(one.seen)}\n")
    if one.remedy:
        write(f"      -> {printable(one.remedy)}\n")


def _json(one: Finding) -> dict[str, Any]:
    return {
        "check": one.check,
        "result": one.level.value,
        "seen": one.seen,
        "remedy": one.remedy,
    }
