# SPDX-License-Identifier: Apache-2.0
"""The guides' commands print what the guides say, on a real control plane."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.accounts import Accounts
from tests.api.conftest import MakeNode
from tests.api.pages import WRITE, Block, blocks, page, plain, rewritten, same
from tests.api.stage import SPACE, Stage
from tests.api.test_controller_devices import admin, chart, controller
from tests.bed.clusterbin import cluster_binary
from tests.cluster.alone import Alone
from tests.cluster.api import ClusterApi
from usbdra.kube.client import KubeClient

__all__ = ["admin", "chart"]  # fixtures

RUN = ("user.md", "administrator.md")
"""Every block of these is run, or says why not."""


@pytest.fixture
def lab(api: ClusterApi) -> Iterator[None]:
    """The guides' namespace."""
    api.core.create_namespace({"metadata": {"name": SPACE}})
    api.wait(
        api.core.list_namespaced_service_account,
        lambda found: True if found else None,
        f"service account {SPACE}/default",
        namespace=SPACE,
    )
    yield
    api.kubectl("delete", "pods", "-n", SPACE, "--all", "--grace-period=0", "--force")
    api.kubectl("delete", "namespace", SPACE)


@pytest.fixture
def shell(plane: Alone, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody's shell: kubectl, the plugin, a kubeconfig."""
    starts = {
        "kubectl": f'#!/bin/sh\nexec {cluster_binary()} kubectl "$@"\n',
        "kubectl-usb": f"#!{sys.executable}\nfrom usbdra.cli.kubectl.program import main; main()\n",
    }
    for name, text in starts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(plane.plane.admin_kubeconfig),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


async def run(words: str, env: dict[str, str], folder: Path) -> str:
    """What the command prints, on either stream."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", words, cwd=folder, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return output.decode()


@pytest.mark.parametrize("name", RUN)
async def test_a_guides_commands_print_what_it_says(
    name: str,
    api: ClusterApi,
    accounts: Accounts,
    admin: KubeClient,
    make_node: MakeNode,
    lab: None,
    shell: dict[str, str],
    tmp_path: Path,
) -> None:
    text = page(name).read_text()
    stage = Stage(api, admin, make_node, tmp_path)
    folder = tmp_path / "here"
    folder.mkdir()
    printed: dict[int, list[str]] = {}
    async with controller(accounts):
        standing = asyncio.create_task(stage.run())
        try:
            for block in blocks(text):
                await prepare(block, stage, folder)
                if block.kind == "console" and "not run" not in block.notes:
                    printed[block.start] = [
                        await run(command.words, shell, folder) for command in block.commands
                    ]
        finally:
            standing.cancel()
            await asyncio.gather(standing, return_exceptions=True)
    if WRITE:
        page(name).write_text(rewritten(text, printed))
    for block in blocks(text):
        if block.start not in printed:
            continue
        for command, output in zip(block.commands, printed[block.start], strict=True):
            assert same(output, command.output), f"$ {command.words}\n{plain(output)}"


async def prepare(block: Block, stage: Stage, folder: Path) -> None:
    """Write the block's file, and have happen what is to happen before it."""
    if "file" in block.notes:
        (folder / block.notes["file"]).write_text(block.body)
    for step in filter(None, block.notes.get("first", "").split("; ")):
        await stage.steps[step]()
