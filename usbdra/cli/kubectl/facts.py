# SPDX-License-Identifier: Apache-2.0
"""What the plugin reads of the cluster for its answers.

Owns which objects are read. Makes no texts of its own.
"""

from __future__ import annotations

from usbdra.cli.kubectl.causes import pinned
from usbdra.cli.kubectl.explain import explain_claim, explain_pod
from usbdra.cli.kubectl.known import Facts, published
from usbdra.controller.hubs import HubUse
from usbdra.controller.hubs import hubs as count_hubs
from usbdra.errors import ConfigError
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    EVENT,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Kind,
    Object,
)

_CLAIM_WORDS = ("claim", "resourceclaim", "resourceclaims")
_POD_WORDS = ("pod", "pods", "po")


async def hubs(client: KubeClient, driver: str) -> list[HubUse]:
    """Hubs of all nodes with the claims that have ports."""
    slices = await client.list(RESOURCE_SLICE, fields=f"spec.driver={driver}")
    claims = await client.list(RESOURCE_CLAIM)
    return count_hubs(slices["items"], claims["items"], driver)


async def explain(client: KubeClient, contract: Contract, namespace: str, target: str) -> str:
    """The paragraph about `pod/NAME` or `claim/NAME`. Raises ConfigError, ApiNotFound."""
    word, slash, name = target.partition("/")
    if not slash:
        word, name = "pod", target
    if word not in (*_CLAIM_WORDS, *_POD_WORDS) or not name:
        raise ConfigError(f"{target!r} is neither pod/NAME nor claim/NAME")
    kind = RESOURCE_CLAIM if word in _CLAIM_WORDS else POD
    item = await client.get(kind, name, namespace)
    own = {
        c["metadata"]["name"]: c for c in (await client.list(RESOURCE_CLAIM, namespace))["items"]
    }
    node = pinned(item if kind is POD else None)
    facts = await _facts(client, contract, namespace, list(own.values()), node)
    return explain_pod(item, own, facts) if kind is POD else explain_claim(item, facts)


async def _facts(
    client: KubeClient, contract: Contract, namespace: str, own: list[Object], node: str
) -> Facts:
    """As much as the caller may see: most users see their own namespace alone."""
    devices = await _seen(client, contract.node_device)
    if devices is None:
        devices = (await client.list(contract.device, namespace))["items"]
    claims = await _seen(client, RESOURCE_CLAIM)
    slices = await _seen(client, RESOURCE_SLICE, fields=f"spec.driver={contract.driver}")
    rules = await _seen(client, DEVICE_TAINT_RULE)
    events = await _seen(client, EVENT, namespace, f"regarding.kind={RESOURCE_CLAIM.kind}")
    everywhere = own if claims is None else claims
    return Facts(
        contract,
        _named(devices) or {},
        everywhere,
        None if slices is None else count_hubs(slices, everywhere, contract.driver),
        None if slices is None else published(slices, contract.driver, rules or ()),
        _named(await _seen(client, DEVICE_CLASS)),
        await _node(client, node),
        None if events is None else _warnings(events, contract.driver, own),
    )


async def _node(client: KubeClient, name: str) -> dict[str, Object] | None:
    """The one node that matters, if it exists."""
    try:
        return {name: await client.get(NODE, name)} if name else {}
    except errors.ApiNotFound:
        return {}
    except errors.ApiForbidden:
        return None


async def _seen(
    client: KubeClient, kind: Kind, namespace: str | None = None, fields: str = ""
) -> list[Object] | None:
    """All objects of a kind in the cluster, or a namespace; None for who may not see them."""
    try:
        return list((await client.list(kind, namespace, fields=fields))["items"])
    except (errors.ApiForbidden, errors.ApiNotFound):  # of a kind that is not served
        return None


def _named(items: list[Object] | None) -> dict[str, Object] | None:
    return None if items is None else {item["metadata"]["name"]: item for item in items}


def _warnings(events: list[Object], driver: str, claims: list[Object]) -> dict[str, str]:
    """The last warning of an agent about each of these claims, by the claim's name."""
    lives = {claim["metadata"]["uid"] for claim in claims}
    ours = [
        event
        for event in events
        if event.get("reportingController") == driver
        and event.get("type") == "Warning"
        and event["regarding"].get("uid") in lives
    ]
    ours.sort(key=lambda event: str(event.get("eventTime") or ""))
    return {
        event["regarding"]["name"]: _sentence(str(event["reason"]), str(event.get("note", "")))
        for event in ours
    }


def _sentence(reason: str, note: str) -> str:
    """`REASON: text`; some notes begin with their reason already."""
    return note if note.startswith(f"{reason}:") else f"{reason}: {note}"
