# SPDX-License-Identifier: Apache-2.0
"""The program `kubectl usb`; kubectl finds it by its name, `kubectl-usb`.

Owns the group of commands. What they do is in reading.py, assigning.py, attaching.py, draining.py,
exporters.py and supporting.py.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from usbdra import __version__
from usbdra.cli.group import HELP, HelpingGroup
from usbdra.cli.kubectl import (
    assigning,
    attaching,
    draining,
    exporters,
    reading,
    supporting,
)


def main() -> NoReturn:
    """Run the plugin and end the process."""
    from usbdra.cli.main import run

    sys.exit(run(None, program, "kubectl usb"))


@click.group(cls=HelpingGroup, name="kubectl usb", context_settings=HELP)
@click.version_option(__version__, "-V", "--version", message="kubectl-usb %(version)s")
def program() -> None:
    """USB devices of the cluster: who has them, who may, and why not."""


for _module in (reading, assigning, attaching, draining, exporters, supporting):
    for _command in _module.COMMANDS:
        program.add_command(_command)
