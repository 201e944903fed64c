# SPDX-License-Identifier: Apache-2.0
"""What a support bundle holds: objects, logs, ports and versions, read and cleaned.

Owns the choice of what is read, and its limits. Secrets and ConfigMaps are not read at all; what
is read goes through redact.py. What cannot be read is said in the bundle and ends nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from usbdra import __version__
from usbdra.cli.kubectl import redact, views
from usbdra.controller.hubs import hubs
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import (
    CLAIM_TEMPLATE,
    CSR,
    DAEMON_SET,
    DEVICE_CLASS,
    EVENT,
    LEASE,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Kind,
    Object,
)

LABEL = "app.kubernetes.io/name=usbdra"
LOG_LINES = 20_000
LOG_BYTES = 8 << 20
"""Of one container."""
ALL_BYTES = 256 << 20
"""Of all logs; what comes later is left out, and the bundle says so."""
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which logs: of the driver's pods in `namespace`, on these nodes (none: on all), so old."""

    namespace: str
    nodes: frozenset[str] = frozenset()
    hours: int = 24


@dataclass
class Collector:
    """Reads once. `files` yields (path in the bundle, content)."""

    client: KubeClient
    contract: Contract
    wanted: Wanted
    missing: list[str] = field(default_factory=list)
    """What could not be read, and why."""

    async def files(self) -> AsyncIterator[tuple[str, str]]:
        """Everything, the list of what is missing last."""
        slices: list[Object] = []
        claims: list[Object] = []
        async for kind, items in self._objects():
            found = [redact.cleaned(item, self.contract.group) for item in items]
            yield f"objects/{kind.plural}.json", _json(found)
            slices = items if kind is RESOURCE_SLICE else slices
            claims = items if kind is RESOURCE_CLAIM else claims
        ports = hubs(slices, claims, self.contract.driver)
        yield "ports.json", _json([views.port_data(hub) for hub in ports])
        pods = await self._list(POD, self.wanted.namespace, labels=LABEL)
        if not pods:
            self.missing.append(
                f"no pod of the driver is in namespace {self.wanted.namespace}; --driver-namespace "
                "says where it is"
            )
        yield "versions.json", _json(await self._versions(pods))
        async for path, text in self._logs(pods):
            yield path, text
        yield "missing.txt", "".join(f"{line}\n" for line in self.missing)

    async def _objects(self) -> AsyncIterator[tuple[Kind, list[Object]]]:
        contract, space = self.contract, self.wanted.namespace
        driver = f"spec.driver={contract.driver}"
        yield RESOURCE_SLICE, await self._list(RESOURCE_SLICE, fields=driver)
        claims = await self._list(RESOURCE_CLAIM)
        yield RESOURCE_CLAIM, [item for item in claims if _ours(item, contract)]
        templates = await self._list(CLAIM_TEMPLATE)
        yield CLAIM_TEMPLATE, [item for item in templates if _ours(item, contract)]
        classes = await self._list(DEVICE_CLASS)
        yield DEVICE_CLASS, [item for item in classes if contract.group in json.dumps(item)]
        for kind in (contract.node_device, contract.device, contract.attachment):
            yield kind, await self._list(kind)
        for kind in (DAEMON_SET, DEPLOYMENT, POD):
            yield kind, await self._list(kind, space, labels=LABEL)
        yield LEASE, await self._list(LEASE, space)
        yield NODE, [_node(item) for item in await self._list(NODE)]
        yield CSR, [_request(i) for i in await self._list(CSR) if _of_us(i, contract)]
        events = await self._list(EVENT)
        yield EVENT, [event for event in events if _told(event, contract, space)]

    async def _list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        try:
            found = await self.client.list(kind, namespace, labels=labels, fields=fields)
        except errors.ApiError as error:
            self.missing.append(f"{kind.plural}: {error}")
            return []
        return list(found["items"])

    async def _versions(self, pods: Iterable[Object]) -> Mapping[str, Any]:
        try:
            server = await self.client.raw("/version")
        except errors.ApiError as error:
            self.missing.append(f"the server's version: {error}")
            server = {}
        images = {c["image"] for pod in pods for c in pod["spec"]["containers"]}
        return {"kubectl-usb": __version__, "server": server, "images": sorted(images)}

    async def _logs(self, pods: Iterable[Object]) -> AsyncIterator[tuple[str, str]]:
        left = ALL_BYTES
        for pod in pods:
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
            if self.wanted.nodes and node not in self.wanted.nodes:
                continue
            restarts = {
                status["name"]: status.get("restartCount", 0)
                for status in (pod.get("status") or {}).get("containerStatuses") or ()
            }
            for container in (c["name"] for c in pod["spec"]["containers"]):
                for previous in (False, True) if restarts.get(container) else (False,):
                    if left <= 0:
                        self.missing.append(f"logs of {name}: the bundle is large enough; --node")
                        continue
                    text = await self._log(name, container, previous)
                    left -= len(text)
                    if text:
                        which = ".previous" if previous else ""
                        yield f"logs/{name}/{container}{which}.log", redact.scrub(text)

    async def _log(self, pod: str, container: str, previous: bool) -> str:
        query = {
            "container": container,
            "tailLines": str(LOG_LINES),
            "limitBytes": str(LOG_BYTES),
            "sinceSeconds": str(self.wanted.hours * 3600),
            "timestamps": "true",
        }
        if previous:
            query["previous"] = "true"
        path = POD.path(self.wanted.namespace, pod, "log")
        try:
            return await self.client.text(path, query, LOG_BYTES)
        except errors.ApiError as error:
            self.missing.append(f"log of {pod}/{container}: {error}")
            return ""


def _json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


def _ours(item: Object, contract: Contract) -> bool:
    """A claim or template that has, or asks for, anything of this driver."""
    return contract.group in json.dumps([item.get("spec"), item.get("status")])


def _node(item: Object) -> Object:
    """A node's conditions, versions and labels; not what else runs or lies there."""
    status = item.get("status") or {}
    kept = {key: status[key] for key in ("conditions", "nodeInfo", "addresses") if key in status}
    return {"metadata": item["metadata"], "status": kept}


def _of_us(item: Object, contract: Contract) -> bool:
    return bool(item["spec"]["signerName"] == contract.key("usbdra-node"))


def _request(item: Object) -> Object:
    """Who asked and what became of it, without the request and the certificate."""
    spec = {key: item["spec"].get(key) for key in ("signerName", "username", "usages")}
    conditions = (item.get("status") or {}).get("conditions") or []
    return {"metadata": item["metadata"], "spec": spec, "status": {"conditions": conditions}}


def _told(event: Object, contract: Contract, space: str) -> bool:
    told_by = str(event.get("reportingController") or "")
    return told_by == contract.driver or event["metadata"].get("namespace") == space
