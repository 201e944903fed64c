# SPDX-License-Identifier: Apache-2.0
"""Parts are kept alive, each without the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from usbdra.controller import parts
from usbdra.controller.options import ControllerOptions
from usbdra.controller.parts import Office, Part, factories, run_parts
from usbdra.kube.client import KubeClient

OPTIONS = ControllerOptions(identity="one", namespace="ns")


class Scripted:
    """A part that does what it is told in each of its lives."""

    def __init__(self, *lives: Callable[[], Awaitable[None]]) -> None:
        self._lives = list(lives)
        self.made = 0

    def __call__(self, office: Office) -> Part:
        self.made += 1
        return self

    async def run(self) -> None:
        await self._lives.pop(0)()


async def fail() -> None:
    raise KeyError("a mistake")


async def end() -> None:
    return


async def test_a_part_that_fails_or_ends_is_made_anew_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "RESTART", (0.001, 0.01))
    back, stopped = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        back.set()
        await asyncio.Event().wait()

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    bad, good = Scripted(fail, end, stay), Scripted(other)
    office = Office(cast(KubeClient, None), OPTIONS)
    task = asyncio.create_task(run_parts(office, [("bad", bad), ("good", good)]))
    await back.wait()
    assert (bad.made, good.made, stopped.is_set()) == (3, 1, False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stopped.is_set()


def test_devices_are_always_a_part() -> None:
    assert "devices" in [name for name, _ in factories(OPTIONS)]
