# SPDX-License-Identifier: Apache-2.0
"""Pods that attachments name are followed one by one, and no longer than they are named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.kube import FakeKube
from tests.waiting import until
from usbdra.controller.namedpods import NamedPods
from usbdra.kube.types import POD

ONE, TWO = ("lab", "one"), ("lab", "two")


def pod(name: str, **more: Any) -> dict[str, Any]:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "main", "containerID": "containerd://x", "state": {"running": {"a": 1}}}
        ],
    }
    spec = {"nodeName": "a", "containers": [{"name": "main", "image": "large"}], "volumes": []}
    return {"metadata": {"name": name, "namespace": "lab", "uid": f"uid-{name}", **more},
            "spec": spec, "status": status}  # fmt: skip


async def test_each_named_pod_is_followed_until_none_names_it() -> None:
    api = FakeKube()
    api.put(POD, pod("one"))
    api.put(POD, pod("other"))
    known: dict[tuple[str, str], Any] = {}
    named = NamedPods(api, known.__setitem__, known.pop)
    task = asyncio.create_task(named.run())
    try:
        named.want({ONE, TWO})
        await until(lambda: known.keys() == {ONE, TWO})
        assert known[TWO] is None
        assert known[ONE]["spec"] == {"nodeName": "a", "containers": [{"name": "main"}]}
        assert known[ONE]["status"] == {
            "phase": "Running",
            "containerStatuses": [
                {"name": "main", "containerID": "containerd://x", "state": {"running": {}}}
            ],
        }
        api.put(POD, pod("two"))
        await until(lambda: known[TWO] is not None)
        named.want({TWO})
        await until(lambda: known.keys() == {TWO})
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
