# SPDX-License-Identifier: Apache-2.0
"""Options and arguments that commands of `kubectl usb` share, with their completion.

Owns their names and help. Does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from usbdra.cli.invocation import FORMATS, OBJECT_FORMATS, Invocation
from usbdra.cli.kubectl import words

if TYPE_CHECKING:
    from usbdra.kube.custom import Contract

F = TypeVar("F", bound=Callable[..., Any])
WAIT_SECONDS = 30
"""How long a command waits until what it asked for is so."""


def common(formats: Sequence[str] = FORMATS) -> Callable[[F], F]:
    """-o, -v and --kubeconfig; the last is the command's own argument `config`."""

    def decorate(function: F) -> F:
        for option in (
            click.option("-v", "--verbose", is_flag=True, help="Say more.", **_SHARED),
            click.option("-o", "--output", type=click.Choice(formats), **_SHARED),
            click.option(
                "--kubeconfig", "config", type=click.Path(dir_okay=False, path_type=Path),
                metavar="FILE", help="Default: as kubectl.",
            ),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


LISTING = common(OBJECT_FORMATS)
"""For commands that list objects of the API."""

NAMESPACE = click.option(
    "-n", "--namespace", metavar="NAMESPACE", shell_complete=words.namespaces,
)  # fmt: skip
WATCH = click.option("-w", "--watch", is_flag=True, help="Go on with every change, until Ctrl-C.")
NODE_DEVICE = click.argument("device", shell_complete=words.node_devices)
DEVICE = click.argument("device", shell_complete=words.devices)


def contract(invocation: Invocation) -> Contract:
    """Names of our kinds, by the setting `group`."""
    from usbdra.kube.custom import Contract

    return Contract(invocation.settings().group)


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value:
        ctx.ensure_object(Invocation).given[str(param.name)] = value


_SHARED: dict[str, Any] = {"expose_value": False, "callback": _remember}
