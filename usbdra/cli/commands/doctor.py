# SPDX-License-Identifier: Apache-2.0
"""`usbdra doctor`."""

from __future__ import annotations

import sys
from typing import Any

import click

from usbdra.cli import checks
from usbdra.cli.checks import Finding, Level
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, paint, pass_invocation
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
    invocation.show(
        [_json(one) for one in found],
        ("CHECK", "RESULT", "SEEN", "REMEDY"),
        lambda wide: ((one.check, one.level.value, one.seen, one.remedy) for one in found),
    )
    failed = sum(one.level is Level.FAIL for one in found)
    if not invocation.machine:
        level = Level.FAIL if failed else Level.OK
        text = f"{failed} of {len(found)} checks failed" if failed else "this node is ready"
        click.echo(paint(text, _COLOURS[level], sys.stdout))
    return KernelUnsupported.exit_code if failed else 0


def _json(one: Finding) -> dict[str, Any]:
    return {
        "check": one.check,
        "result": one.level.value,
        "seen": one.seen,
        "remedy": one.remedy,
    }
