# SPDX-License-Identifier: Apache-2.0
"""`usbdra controller` as the Deployment starts it: probes, Lease, an orderly end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.accounts import Accounts
from tests.api.chart import NAMESPACE, installed
from tests.api.devices import until
from tests.cluster.alone import Alone
from tests.cluster.api import ClusterApi
from usbdra.kube.types import LEASE

NAME = "usbdra-controller"


@pytest.fixture(scope="module", autouse=True)
def chart(api: ClusterApi) -> Iterator[None]:
    """The controller's account with its rights."""
    with installed(api, only=lambda item: item["metadata"]["name"] == NAME):
        yield


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def answer(port: int, path: str) -> int:
    """The HTTP status of a probe."""

    def get() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    return await asyncio.to_thread(get)


async def test_it_stands_for_election_answers_probes_and_gives_the_lease_back(
    plane: Alone, accounts: Accounts, tmp_path: Path
) -> None:
    admin, port = await accounts.admin(), free_port()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(plane.plane.token_kubeconfig(accounts.token(NAMESPACE, NAME)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "usbdra", "controller", "--namespace", NAMESPACE,
        "--pod-name", "pod-one", "--health-port", str(port), "--kubeconfig", str(kubeconfig),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await until(admin, LEASE, NAME, lambda lease: holder(lease).startswith("pod-one_"), NAMESPACE)
    assert await answer(port, "/livez") == 200
    assert await answer(port, "/readyz") == 200
    assert await answer(port, "/other") == 404
    process.send_signal(signal.SIGUSR2)
    assert await answer(port, "/livez") == 200
    process.send_signal(signal.SIGTERM)
    _, log = await process.communicate()
    said = [json.loads(line) for line in log.splitlines()]
    (state,) = (line["state"] for line in said if line["message"] == "state")
    assert state["controller"]["leads"] is True
    assert process.returncode == 0, log.decode()
    assert b'"controller stopped"' in log
    assert holder(await admin.get(LEASE, NAME, NAMESPACE)) == ""


def holder(lease: dict[str, Any] | None) -> str:
    return str(((lease or {}).get("spec") or {}).get("holderIdentity", ""))
