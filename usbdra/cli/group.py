# SPDX-License-Identifier: Apache-2.0
"""The program's click group: which commands there are, and the options all of them take.

Owns the list of commands, their loading on demand, and the common options, which may stand
before or after the command's name. Must not import a command before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from usbdra import __version__
from usbdra.cli.invocation import FORMATS, Invocation

F = TypeVar("F", bound=Callable[..., Any])

COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("inventory", "List the USB devices of this node and what may be done with them."),
    "ports": ("ports", "Show the vhci ports that imported devices sit on."),
    "bind": ("export", "Take a device from its host driver so that it can be exported."),
    "unbind": ("export", "Give a bound device back to its host driver."),
    "serve": ("serve", "Export this node's devices to others."),
    "remote": ("remote", "List what another node exports."),
    "attach": ("attach", "Use a device of another node as if it were plugged in here."),
    "detach": ("attach", "Give an attached device back."),
    "watch": ("watch", "Print every change of the node's devices as it happens."),
    "doctor": ("doctor", "Check this node and say what to do about what is missing."),
    "slices": ("slices", "Print the ResourceSlices this node would publish."),
    "agent": ("agent", "Be the agent of a Kubernetes node (started by the DaemonSet)."),
    "controller": ("controller", "Be the cluster's controller (started by the Deployment)."),
    "exporter": ("exporter", "Face the network for the agent, without privilege."),
    "node-setup": ("node_setup", "Load the kernel's modules and keep the node's label true."),
    "withdraw": ("withdraw", "Take the driver's slices out of a cluster, before uninstalling it."),
    "pki": ("pki", "Make and show certificates for nodes without a cluster."),
    "version": ("version", "Print version, Python and kernel."),
    "completion": ("completion", "Print the completion script of a shell."),
}
"""Command name to the module below `usbdra.cli.commands` that has it, and its one-line help."""

HELP = {"help_option_names": ["-h", "--help"]}


TCP_PORT = click.IntRange(1, 65535)


class HelpingGroup(click.Group):
    """A group that shows its help when it is called with nothing at all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; its own way for an empty call differs between its versions."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class LazyGroup(HelpingGroup):
    """A group that imports a command's module when the command is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of a user's day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"usbdra.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a hint for a slip of the pen."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from usbdra.config import closest

            raise click.UsageError(f"no command {args[0]!r}{closest(args[0], list(COMMANDS))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their one-line help, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def common_options(formats: Sequence[str] = FORMATS) -> Callable[[F], F]:
    """Add -o, --root, --config and -v; `formats` are those the command can write."""

    def decorate(function: F) -> F:
        for option in reversed(_options(formats)):
            function = option(function)
        return function

    return decorate


def _options(formats: Sequence[str]) -> list[Callable[[F], F]]:
    shared: dict[str, Any] = {"expose_value": False, "callback": _remember}
    options = [
        click.option(
            "--root",
            type=click.Path(file_okay=False, exists=True, path_type=Path),
            metavar="DIR",
            help="Read DIR/sys, DIR/dev and DIR/proc in place of the real ones.",
            **shared,
        ),
        click.option(
            "--config",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Settings file; default /etc/usbdra/config.yaml if it is there.",
            **shared,
        ),
        click.option("-v", "--verbose", is_flag=True, default=None, help="Say more.", **shared),
    ]
    if formats:
        choice = click.option(
            "-o", "--output", type=click.Choice(formats), help="Form of the output.", **shared
        )
        options.insert(0, choice)
    return options


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep a common option's value for the whole call, wherever it was given."""
    if value is not None:
        ctx.ensure_object(Invocation).given[str(param.name)] = value


@click.group(cls=LazyGroup, name="usbdra", context_settings=HELP)
@common_options()
@click.version_option(__version__, "-V", "--version", message="usbdra %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Any USB device of any node, used on any other node as if it were plugged in there."""
    ctx.ensure_object(Invocation)
