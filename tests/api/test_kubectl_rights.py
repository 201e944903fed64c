# SPDX-License-Identifier: Apache-2.0
"""Each command of `kubectl usb` works with the rights of docs/security.md and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.accounts import Accounts
from tests.api.chart import GROUP
from tests.api.test_controller_devices import NUSB, STICK, chart
from tests.cluster.alone import Alone
from tests.cluster.api import ClusterApi
from tests.cluster.driver import ROOT
from usbdra.cli.kubectl import assigning, attaching
from usbdra.cli.kubectl.program import program
from usbdra.cli.main import run

__all__ = ["chart"]  # fixtures

DONE, NOT_YET, NOT_FOUND = 0, 1, 3
"""Exit codes: nobody answers a reset or attaches anything here."""


def rules(command: str) -> list[dict[str, Any]]:
    """The rows of a command."""
    text = (ROOT / "docs/security.md").read_text().split("## Rights for kubectl usb", 1)[1]
    found, current = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) != 4 or cells[0] in ("command", "---"):
            continue
        current = cells[0] or current
        if f"`{command}`" not in current:
            continue
        for resource in re.findall(r"`([^`]+)`", cells[1].replace("<group>", GROUP)):
            plural, _, group = resource.partition(".")
            verbs = cells[2].split(", ")
            found.append({"apiGroups": [group], "resources": [plural], "verbs": verbs})
    return found


@pytest.fixture
def as_account(
    api: ClusterApi, plane: Alone, accounts: Accounts, namespace: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:  # fmt: skip
    """Run a command as an account that has just its rights; exit code and what was said."""
    for module in (assigning, attaching):
        monkeypatch.setattr(module, "WAIT_SECONDS", 2)

    def call(command: str, *words: str) -> tuple[int, str]:
        meta = {"name": f"usb-{command}"}
        account = {"kind": "ServiceAccount", **meta, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta}
        version = "rbac.authorization.k8s.io/v1"
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {
                "apiVersion": version, "kind": "ClusterRole", "metadata": meta,
                "rules": rules(command),
            },
            {
                "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": meta,
                "roleRef": role, "subjects": [account],
            },
        ]  # fmt: skip
        api.apply(made, namespace=namespace)
        path = tmp_path / f"{command}.kubeconfig"
        path.write_text(plane.plane.token_kubeconfig(accounts.token(namespace, meta["name"])))
        try:
            code = run([command, *words, "--kubeconfig", str(path)], program, "kubectl usb")
        finally:
            api.delete(made[1:], namespace=namespace)
        out, err = capsys.readouterr()
        return code, out + err

    return call


def test_every_commands_documented_rights_are_enough(
    as_account: Callable[..., tuple[int, str]], api: ClusterApi, namespace: str, tmp_path: Path
) -> None:
    pod = {"containers": [{"name": "main", "image": "none"}]}
    api.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod}, namespace
    )
    drained = "drained-node"
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": drained}})
    nusb = {"apiVersion": NUSB.api_version, "kind": NUSB.kind, "metadata": {"name": STICK}}
    api.apply(nusb)
    space = ("-n", namespace)
    for command, words, code, said in (
        ("devices", (), DONE, STICK),
        ("devices", space, DONE, "NAME"),
        ("claims", (), DONE, "NAMESPACE"),
        ("top", (), DONE, "NAMESPACE"),
        ("ports", (), DONE, "NODE"),
        ("explain", ("p", *space), DONE, "asks for no claim"),
        ("assign", (STICK, *space), NOT_YET, "the controller has not looked at it"),
        ("unassign", (STICK,), NOT_YET, "the controller has not looked at it"),
        ("reset", (STICK,), NOT_YET, "no agent has answered"),
        ("attach", (STICK, "--vm", "win", *space), NOT_YET, "the controller has not looked at it"),
        ("detach", (STICK, *space), DONE, "detached"),
        ("drain", ("nowhere", "--timeout", "1"), NOT_FOUND, "there is no node nowhere"),
        ("drain", (drained, "--timeout", "5"), DONE, "drained"),
        ("undrain", (drained,), DONE, "in use again"),
        ("support-bundle", ("-f", str(tmp_path / "b.tar.gz")), DONE, "b.tar.gz"),
    ):
        found = as_account(command, *words)
        assert (found[0], said in found[1]) == (code, True), (command, found)
