# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb drain` and `undrain`: a node gives up its USB devices and those of others, in order;
a host outside the cluster its own.

Owns arguments, output and the order: nothing new, then what uses the node's devices, then what the
node uses. Who is evicted, and how, is the control plane's (device taint eviction, KEP 5055).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from usbdra.cli.invocation import Invocation, pass_invocation
from usbdra.cli.kubectl import words
from usbdra.cli.kubectl.options import common, contract
from usbdra.cli.kubectl.session import ask

if TYPE_CHECKING:
    from usbdra.cli.kubectl.drains import Held
    from usbdra.kube.client import KubeClient
    from usbdra.kube.custom import Contract
    from usbdra.kube.types import Kind

NODE = click.argument("node", shell_complete=words.places)
MANAGER = "kubectl-usb"
NAMED = 5
"""Claims that one line of progress names."""


@click.command("drain")
@common()
@NODE
@click.option(
    "--timeout", type=click.IntRange(1, 86400), default=300, show_default=True,
    metavar="SECONDS", help="How long to wait for all to be given back.",
)  # fmt: skip
@pass_invocation
def drain_command(invocation: Invocation, config: Path | None, node: str, timeout: int) -> int:
    """End all use of a node's USB devices, and the node's use of others (status 1: not in time).

    Pods that use its devices anywhere are evicted, then pods on it that use devices of other
    nodes; local use of its own devices ends with the first. Nothing new is given until
    `kubectl usb undrain`. Claims that tolerate the taint stay. A host outside the cluster,
    `outside/HOST` or a name that no node has, gives up its own devices.
    """
    from usbdra.cli.kubectl.drains import place, steps

    names = contract(invocation)

    async def work(client: KubeClient) -> tuple[str, list[Held]]:
        where = await _found(client, names, node)
        ended = steps(where)
        every = [prefix for prefixes in ended.values() for prefix in prefixes]
        await _put(client, names, where, every, "NoSchedule")
        deadline = asyncio.get_running_loop().time() + timeout
        for what, prefixes in ended.items():
            await _put(client, names, where, prefixes, "NoExecute")
            left = await _emptied(client, names.driver, where, prefixes, what, deadline)
            if left:
                return where, left
        return where, []

    where, left = ask(config, work)
    listed = [str(one) for one in left]
    text = (
        f"{place(where)}: drained; kubectl usb undrain {where} lets it be used again"
        if not left
        else f"{place(where)}: not done in {timeout} s: {_named(listed)}; the drain goes on"
    )
    invocation.line(text, {"node": where, "done": not left, "claims": listed})
    return 1 if left else 0


@click.command("undrain")
@common()
@NODE
@pass_invocation
def undrain_command(invocation: Invocation, config: Path | None, node: str) -> None:
    """Let the USB devices and ports of a drained node, or the devices of a host, be used again."""
    from usbdra.cli.kubectl.drains import place, rule_name, steps
    from usbdra.errors import NotFound
    from usbdra.kube.types import DEVICE_TAINT_RULE

    names = contract(invocation)

    async def work(client: KubeClient) -> str:
        try:
            where = await _found(client, names, node)
        except NotFound:  # its rules may have outlived it
            where = node
        for prefixes in steps(where).values():
            for prefix in prefixes:
                await client.delete(DEVICE_TAINT_RULE, rule_name(names.driver, prefix, where))
        return where

    where = ask(config, work)
    invocation.line(f"{place(where)}: in use again", {"node": where, "done": True})


async def _found(client: KubeClient, names: Contract, word: str) -> str:
    """The node of this name, else the host as it stands where a node does. Raises NotFound.

    Who may not look at nodes, or at hosts and says that it is one, is believed.
    """
    from usbdra.errors import NotFound
    from usbdra.kube.types import NODE as KIND
    from usbdra.types import outside_host, outside_node

    host = outside_host(word)
    if host is None:
        if await _exists(client, KIND, word, unseen=True):
            return word
        if await _exists(client, names.host, word, unseen=False):
            return outside_node(word)
        raise NotFound(f"there is no node {word}, and no such host; see kubectl get nodes")
    if not await _exists(client, names.host, host, unseen=True):
        raise NotFound(f"there is no host {host}; see kubectl usb exporter list")
    return word


async def _exists(client: KubeClient, kind: Kind, name: str, *, unseen: bool) -> bool:
    """unseen: the answer for who may not look."""
    from usbdra.kube import errors

    try:
        await client.get(kind, name)
    except errors.ApiNotFound:
        return False
    except errors.ApiForbidden:
        return unseen
    return True


async def _put(
    client: KubeClient, names: Contract, node: str, prefixes: Sequence[str], effect: str
) -> None:
    """Raises Refused on a server that has no such rules."""
    from usbdra.cli.kubectl.drains import rules
    from usbdra.errors import Refused
    from usbdra.kube import errors
    from usbdra.kube.types import DEVICE_TAINT_RULE

    try:
        for rule in rules(names, node, prefixes, effect):
            await client.apply(DEVICE_TAINT_RULE, rule, manager=MANAGER)
    except errors.ApiNotFound as error:
        raise Refused(
            "this cluster serves no DeviceTaintRule (resource.k8s.io/v1, Kubernetes 1.37); "
            f"kubectl drain {node} ends what pods of the node use"
        ) from error


async def _emptied(
    client: KubeClient,
    driver: str,
    node: str,
    prefixes: Sequence[str],
    what: str,
    deadline: float,
) -> list[Held]:
    """Follow the claims until none has anything there; those left at the deadline. Raises
    ApiError."""
    from contextlib import aclosing

    from usbdra.cli.kubectl.drains import held, place
    from usbdra.cli.kubectl.waiting import fail
    from usbdra.kube.types import RESOURCE_CLAIM
    from usbdra.kube.watch import Reflector, Synced

    reflector = Reflector(client, RESOURCE_CLAIM, on_error=fail)
    left: list[Held] = []
    told: list[Held] | None = None
    synced = False  # before that the cache may not know them all
    try:
        async with asyncio.timeout_at(deadline), aclosing(reflector.run()) as news:
            async for event in news:
                synced = synced or isinstance(event, Synced)
                if not synced:
                    continue
                left = list(held(reflector.cache.values(), driver, node, prefixes))
                if left != told:
                    _progress(place(node), what, left)
                    told = left
                if not left:
                    return []
    except TimeoutError:
        pass
    return left


def _progress(where: str, what: str, left: Sequence[Held]) -> None:
    """On standard error, where it is in no program's way."""
    state = f"{len(left)} claims have them: {_named([str(one) for one in left])}"
    click.echo(f"{where}: {what}: {state if left else 'free'}", err=True)


def _named(listed: Sequence[str]) -> str:
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


COMMANDS = (drain_command, undrain_command)
