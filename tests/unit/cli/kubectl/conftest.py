# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb` run in this process, on an API server in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from tests.unit.cli.conftest import Cli, Result
from usbdra.cli.kubectl import assigning, attaching
from usbdra.cli.kubectl.program import program
from usbdra.cli.main import run
from usbdra.kube import errors
from usbdra.kube.client import KubeClient

KUBECONFIG = """
current-context: here
contexts:
- {name: there, context: {namespace: wrong}}
- {name: here, context: {namespace: lab}}
"""


class Cluster(FakeKube):
    """The API server; every call of the program has a loop of its own.

    `logs`: by (path, container, previous).
    """

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[tuple[str, str, bool], str] = {}

    async def raw(self, path: str) -> dict[str, str]:
        return {"gitVersion": "v1.37.2"} if path == "/version" else {}

    async def text(self, path: str, query: Mapping[str, str], limit: int) -> str:
        key = (path, query["container"], "previous" in query)
        if key not in self.logs:
            raise errors.ApiInvalid(path, 400, "BadRequest", "the container is not there")
        return self.logs[key][:limit]

    async def aclose(self) -> None:
        self._tell()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    found = Cluster()

    async def connect(*_: Any) -> Cluster:
        return found

    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr(KubeClient, "connect", connect)
    for module in (assigning, attaching):
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    return found


@pytest.fixture
def usb(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    monkeypatch.setattr("usbdra.config.DEFAULT_FILE", Path("/nonexistent"))

    def call(*arguments: object) -> Result:
        code = run([str(a) for a in arguments], program, "kubectl usb")
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call
