# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

from usbdra.agent.probes import Probes, ask, socket_path


async def asked(path: Path, probe: str) -> bool:
    return await asyncio.to_thread(ask, path, probe)


async def test_each_state_is_told_on_the_socket_and_as_a_file(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "uid-1")
    probes = Probes(path)
    await probes.start()
    try:
        assert [await asked(path, p) for p in ("live", "startup", "ready")] == [True, False, False]
        probes.set("startup")
        assert await asked(path, "startup")
        assert Path(f"{path}.startup").exists()
        probes.set("startup", False)
        assert not await asked(path, "startup")
        assert not Path(f"{path}.startup").exists()
        assert not await asked(path, "no such probe")
    finally:
        await probes.stop()
    assert list(tmp_path.iterdir()) == []


async def test_what_an_earlier_run_of_the_pod_left_tells_nothing(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "uid-1")
    Path(f"{path}.ready").touch()
    probes = Probes(path)
    await probes.start()
    assert not Path(f"{path}.ready").exists()
    await probes.stop()


def test_no_agent_is_a_no(tmp_path: Path) -> None:
    assert not ask(tmp_path / "nobody.sock", "live")


async def test_an_agent_that_no_kubelet_can_find_is_not_live(tmp_path: Path) -> None:
    path, found = socket_path(tmp_path, "uid-1"), True
    probes = Probes(path)
    probes.live_while(lambda: found)
    await probes.start()
    try:
        probes.set("startup")
        assert await asked(path, "live")
        found = False
        assert not await asked(path, "live")
        assert await asked(path, "startup")
    finally:
        await probes.stop()
