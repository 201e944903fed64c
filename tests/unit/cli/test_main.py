# SPDX-License-Identifier: Apache-2.0
"""Exit codes and the form of messages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.fakes.sysfs import SysTree
from tests.unit.cli.conftest import Cli
from usbdra.cli import parts
from usbdra.cli.group import COMMANDS, program
from usbdra.cli.kubectl.program import program as kubectl_program
from usbdra.errors import NotFound


def test_help_names_every_command_without_importing_one(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert all(f"  {name} " in result.out for name in COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["pki"]])
def test_called_with_nothing_it_helps(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert (result.code, result.err) == (0, "")
    assert result.out == cli(*arguments, "--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_under_its_own_name_with_its_own_help(cli: Cli, name: str) -> None:
    result = cli(name, "-h")
    assert result.code == 0
    assert result.out.startswith(f"Usage: usbdra {name} ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "usbdra: no command 'lst'; did you mean 'list'? (see: usbdra --help)"),
        (["list", "--nope"], "usbdra: No such option '--nope'. (see: usbdra list --help)"),
        (
            ["remote", "host", "--port", "99999"],
            "usbdra: Invalid value for '--port': 99999 is not in the range 1<=x<=65535. "
            "(see: usbdra remote --help)",
        ),
        (["attach", "host"], "usbdra: Missing argument 'DEVICE'. (see: usbdra attach --help)"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    cli: Cli, arguments: list[str], message: str
) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.replace("No such option: --nope", "No such option '--nope'") == f"{message}\n"


def test_errors_in_json_have_reason_message_and_exit_code(cli: Cli, tmp_path: Path) -> None:
    result = cli("ports", "--root", tmp_path, "-o", "json")
    error = json.loads(result.err)["error"]
    assert result.code == error["exitCode"] == 6
    assert error["reason"] == "KernelUnsupported"
    assert "modprobe vhci-hcd" in error["message"]
    assert result.out == ""


@pytest.mark.parametrize("form", [["-o", "json"], ["-ojson"], ["--output=yaml"]])
def test_wrong_usage_in_json_too(cli: Cli, form: list[str]) -> None:
    result = cli("list", "--nope", *form)
    error = json.loads(result.err)["error"]
    assert (result.code, error["exitCode"], error["reason"]) == (2, 2, "BadConfig")


def test_common_options_stand_before_or_after_the_command(cli: Cli, tree: SysTree) -> None:
    before = cli("--root", tree.root, "-o", "json", "list")
    after = cli("list", "-o", "json", "--root", tree.root)
    assert before.json == after.json
    assert len(before.json) == 2


def test_root_is_refused_where_the_machine_is_changed(cli: Cli, tree: SysTree) -> None:
    result = cli("attach", "host", "1-1", "--root", tree.root)
    assert result.code == 2
    assert "--root is for commands that only read" in result.err


def broken(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: object) -> None:
        raise error

    monkeypatch.setattr(parts, "snapshot", fail)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (NotFound("no \x1b[2Jdevice"), 3, "usbdra: no \\x1b[2Jdevice"),
        (PermissionError(13, "write: Permission denied", "/sys/x"), 11,
         "usbdra: write: Permission denied: /sys/x; this needs root (CAP_SYS_ADMIN and write "
         "access to /sys)"),
        (OSError(5, "read: Input/output error", "/sys/y"), 1,
         "usbdra: read: Input/output error: /sys/y"),
        (ZeroDivisionError("a"), 70,
         "usbdra: internal error: ZeroDivisionError: a; -v shows where"),
        (KeyboardInterrupt(), 130, None),
    ],
)  # fmt: skip
def test_what_a_command_raises_becomes_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str | None
) -> None:
    broken(error, monkeypatch)
    result = cli("list")
    assert result.code == code
    assert result.err == ("\n" if message is None else f"{message}\n")  # after the terminal's ^C


def test_verbose_shows_where_an_internal_error_is(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(ZeroDivisionError("a"), monkeypatch)
    result = cli("-v", "list")
    assert "Traceback (most recent call last)" in result.err
    assert result.code == 70


def test_a_reader_that_goes_away_is_no_error_message(tree: SysTree) -> None:
    program = [sys.executable, "-m", "usbdra", "list", "--root", str(tree.root)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_list_on_a_root_imports_nothing_heavy(tree: SysTree) -> None:
    code = (
        "import sys; from usbdra.cli.main import run; "
        f"assert run(['list', '--root', {str(tree.root)!r}, '-o', 'json']) == 0; "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    loaded = set(done.stderr.split())
    heavy = ("ssl", "asyncio", "pyroute2", "pyudev", "cryptography", "kubernetes", "grpc", "yaml",
             "logging", "subprocess", "tabulate")  # fmt: skip
    assert loaded.isdisjoint(heavy), loaded.intersection(heavy)
    assert len(json.loads(done.stdout)) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_us_back(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert result.code == 0
    assert "_USBDRA_COMPLETE" in result.out


def test_completion_offers_devices_of_this_node(
    tree: SysTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.shell_completion import ShellComplete

    from usbdra.config import Settings

    monkeypatch.setattr("usbdra.config.load", lambda: Settings(root=tree.root, node="a"))
    complete = ShellComplete(program, {}, "usbdra", "_USBDRA_COMPLETE")
    words = [item.value for item in complete.get_completions(["bind"], "usb-0781")]
    assert words == ["usb-0781-0316-4c53"]
    assert [item.value for item in complete.get_completions(["detach"], "")] == ["0", "2-1"]


def test_version_in_json(cli: Cli) -> None:
    assert cli("version", "-o", "json").json["python"] == sys.version.split()[0]
    assert cli("--version").out.startswith("usbdra ")


def commands(group: click.Group) -> Iterator[click.Command]:
    """All commands of a program, those of its groups as well."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else [command]


@pytest.mark.parametrize("group", [program, kubectl_program], ids=["usbdra", "kubectl-usb"])
def test_every_default_is_a_value_that_its_option_takes(group: click.Group) -> None:
    """What click checks only when the option is left out, as a pod's command does."""
    for command in commands(group):
        context = click.Context(command)
        for option in command.params:
            value = option.get_default(context)
            if isinstance(value, str | int | float | tuple | Path):  # others stand for none
                option.type_cast_value(context, value)
