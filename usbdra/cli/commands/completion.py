# SPDX-License-Identifier: Apache-2.0
"""`usbdra completion`."""

from __future__ import annotations

import click

from usbdra.cli.invocation import write


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: usbdra completion bash > /etc/bash_completion.d/usbdra
    zsh:  usbdra completion zsh > "${fpath[1]}/_usbdra"
    fish: usbdra completion fish > ~/.config/fish/completions/usbdra.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"no completion for {shell}")
    write(kind(ctx.find_root().command, {}, "usbdra", "_USBDRA_COMPLETE").source() + "\n")
