# SPDX-License-Identifier: Apache-2.0
"""`usbdra version`."""

from __future__ import annotations

import os
import platform

import click

from usbdra import __version__
from usbdra.cli.group import common_options
from usbdra.cli.invocation import Invocation, pass_invocation


@click.command("version")
@common_options()
@pass_invocation
def version_command(invocation: Invocation) -> None:
    """Print version, Python and kernel: what a bug report needs."""
    facts = {
        "usbdra": __version__,
        "python": platform.python_version(),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
    }
    invocation.show(facts, ("PART", "VERSION"), lambda wide: facts.items())
