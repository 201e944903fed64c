# SPDX-License-Identifier: Apache-2.0
"""Where a device is to be plugged in: which pod of a machine, which container of a pod. Pure.

Owns the choice among a machine's pods. During a restart or a migration there are several; a
device stays with the pod it is in until that pod is told to end and another one runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from usbdra.controller.holder import Place
from usbdra.kube.custom import Contract

QMP, BUS = "qmp", "usb-bus"
"""Annotations of a machine's pod: VOLUME/PATH of the socket in an emptyDir, and a USB bus."""


def place(
    pods: Iterable[Mapping[str, Any]], current: str, socket: str, names: Contract
) -> Place | None:
    """The pod that a device belongs into now; None while the machine does not run.

    current: UID of the pod that the device is in. socket: for pods without an annotation.
    """
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    fresh = [pod for pod in running if not pod["metadata"].get("deletionTimestamp")]
    for found in (fresh, running):
        same = with_uid(found, current, socket, names)
        if same is not None:
            return same
        if found is fresh and fresh:
            return _place(max(fresh, key=_age), socket, names)
    return None


def container_place(pod: Mapping[str, Any] | None, current: str, container: str) -> Place | None:
    """The container of a pod that is to have a device; None while the pod does not run.

    container: empty for the pod's first. It keeps the device while it is told to end.
    """
    if pod is None or (pod.get("status") or {}).get("phase") != "Running":
        return None
    if pod["metadata"].get("deletionTimestamp") and pod["metadata"]["uid"] != current:
        return None
    return _container(pod, container)


def container_with_uid(pod: Mapping[str, Any] | None, uid: str, container: str) -> Place | None:
    """The same pod whatever its state; None when it is another one."""
    if pod is None or pod["metadata"]["uid"] != uid:
        return None
    return _container(pod, container)


def lacks(pod: Mapping[str, Any] | None, container: str) -> str:
    """What is wrong with the name of a container; empty when nothing is, or it is not known."""
    names = _containers(pod or {})
    if not names or not container or container in names:
        return ""
    return f"pod {(pod or {})['metadata']['name']} has no container {container}; it has " + (
        ", ".join(names)
    )


def _containers(pod: Mapping[str, Any]) -> list[str]:
    return [str(one["name"]) for one in (pod.get("spec") or {}).get("containers") or ()]


def _container(pod: Mapping[str, Any], container: str) -> Place | None:
    name = container or next(iter(_containers(pod)), "")
    if name not in _containers(pod):
        return None
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    running = [c for c in found if c.get("name") == name and "running" in (c.get("state") or {})]
    identifier = str(running[0].get("containerID") or "") if running else ""
    meta = pod["metadata"]
    return Place(
        pod=str(meta["name"]),
        uid=str(meta["uid"]),
        node=str((pod.get("spec") or {}).get("nodeName", "")),
        container=name,
        container_id=identifier.partition("://")[2],
    )


def with_uid(
    pods: Iterable[Mapping[str, Any]], uid: str, socket: str, names: Contract
) -> Place | None:
    """The place of one of these pods; None when it is not among them."""
    found = next((pod for pod in pods if pod["metadata"]["uid"] == uid), None)
    return _place(found, socket, names) if found is not None else None


def _age(pod: Mapping[str, Any]) -> tuple[str, str]:
    meta = pod["metadata"]
    return str(meta.get("creationTimestamp", "")), str(meta["name"])


def _place(pod: Mapping[str, Any], socket: str, names: Contract) -> Place:
    meta = pod["metadata"]
    said: Mapping[str, str] = meta.get("annotations") or {}
    return Place(
        pod=str(meta["name"]),
        uid=str(meta["uid"]),
        node=str((pod.get("spec") or {}).get("nodeName", "")),
        socket=said.get(names.key(QMP)) or socket,
        bus=said.get(names.key(BUS), ""),
    )
