# SPDX-License-Identifier: Apache-2.0
"""Words for completion that depend on the cluster: names of devices, namespaces, pods.

Completion must never fail, print or keep a shell waiting: a cluster that does not answer within
a moment offers no words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import click

from usbdra.errors import UsbdraError

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient
    from usbdra.kube.custom import Contract
    from usbdra.kube.types import Kind

Work: TypeAlias = "Callable[[KubeClient, Contract, str], Awaitable[Iterable[str]]]"
"""From a client, our names and the namespace meant to words."""

TIMEOUT = 3.0
"""Seconds that a shell may wait for the API server."""


def namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of namespaces."""
    from usbdra.kube.types import NAMESPACE

    return _named(ctx, incomplete, lambda contract: NAMESPACE)


def places(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of nodes, and of hosts outside the cluster as they stand in lists."""

    async def work(client: KubeClient, contract: Contract, space: str) -> Iterable[str]:
        from usbdra.kube.types import NODE
        from usbdra.types import outside_node

        found = [item["metadata"]["name"] for item in (await client.list(NODE))["items"]]
        with suppress(UsbdraError):  # in most clusters there is no such kind
            hosts = (await client.list(contract.host))["items"]
            found += [outside_node(item["metadata"]["name"]) for item in hosts]
        return found

    return _words(ctx, incomplete, work)


def hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of hosts outside the cluster."""
    return _named(ctx, incomplete, lambda contract: contract.host)


def node_devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the cluster's devices."""
    return _named(ctx, incomplete, lambda contract: contract.node_device)


def devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the devices of a namespace."""
    return _named(ctx, incomplete, lambda contract: contract.device)


def pods(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of pods of a namespace."""
    from usbdra.kube.types import POD

    return _named(ctx, incomplete, lambda contract: POD)


def machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of virtual machines of a namespace."""
    return _named(ctx, incomplete, lambda contract: contract.machine)


def attached_devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of devices of a namespace that a USBAttachment is about."""

    async def work(client: KubeClient, contract: Contract, space: str) -> Iterable[str]:
        items = (await client.list(contract.attachment, space))["items"]
        return {str(item["spec"]["device"]) for item in items}

    return _words(ctx, incomplete, work)


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What can be explained: names of pods, `pod/NAME` and `claim/NAME`."""

    async def work(client: KubeClient, contract: Contract, space: str) -> Iterable[str]:
        from usbdra.kube.types import POD, RESOURCE_CLAIM

        pods = [i["metadata"]["name"] for i in (await client.list(POD, space))["items"]]
        claims = (await client.list(RESOURCE_CLAIM, space))["items"]
        named = [f"claim/{item['metadata']['name']}" for item in claims]
        return [*pods, *(f"pod/{name}" for name in pods), *named]

    return _words(ctx, incomplete, work)


def _named(ctx: click.Context, incomplete: str, kind_of: Callable[[Contract], Kind]) -> list[str]:
    async def work(client: KubeClient, contract: Contract, space: str) -> Iterable[str]:
        kind = kind_of(contract)
        listed = await client.list(kind, space if kind.namespaced else None)
        return [item["metadata"]["name"] for item in listed["items"]]

    return _words(ctx, incomplete, work)


def _words(ctx: click.Context, incomplete: str, work: Work) -> list[str]:
    found: Iterable[str] = ()
    with suppress(UsbdraError, OSError, KeyError):
        from usbdra.cli.kubectl import session
        from usbdra.config import load
        from usbdra.kube.custom import Contract

        path = ctx.params.get("config")
        contract = Contract(load().group)
        space = session.namespace(path, ctx.params.get("namespace"))
        found = session.ask(path, lambda client: work(client, contract, space), timeout=TIMEOUT)
    return sorted(word for word in found if word.startswith(incomplete))
