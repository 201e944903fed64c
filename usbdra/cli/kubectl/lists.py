# SPDX-License-Identifier: Apache-2.0
"""Lists of the API's objects, once or with every change that comes.

Owns which kind is read and how an object becomes lines of output. Makes no texts of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from usbdra.cli import table
from usbdra.cli.invocation import Invocation, write
from usbdra.cli.kubectl import views
from usbdra.controller.uses import Use, uses
from usbdra.errors import ConfigError
from usbdra.kube import errors
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import RESOURCE_CLAIM, Kind, Object
from usbdra.kube.watch import Change, Reflector

GONE = "Deleted"
"""Stands for the state of what is not there any more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a list: what tells it from others, what programs get, what people get, and the
    object's name."""

    key: str
    data: Any
    row: Callable[[bool], list[str]]
    name: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One kind's list. `entries`: the lines of one object; `state`: the column that says gone."""

    kind: Kind
    namespace: str | None
    headers: Sequence[str]
    wide: Sequence[str]
    entries: Callable[[Object], list[Entry]]
    state: int


def devices(contract: Contract, namespace: str | None) -> Listing:
    """NodeUSBDevices, or the USBDevices of a namespace."""
    kind = contract.device if namespace else contract.node_device

    def entries(item: Object) -> list[Entry]:
        name = f"{kind.kind.lower()}.{kind.group}/{item['metadata']['name']}"
        return [Entry(name, item, lambda wide: views.device_row(item, wide), name)]

    state = views.DEVICE_HEADERS.index("READY")
    return Listing(kind, namespace, views.DEVICE_HEADERS, views.DEVICE_WIDE, entries, state)


def claims(contract: Contract, namespace: str | None) -> Listing:
    """ResourceClaims that have a device of ours."""

    def entries(item: Object) -> list[Entry]:
        name = f"resourceclaim.{RESOURCE_CLAIM.group}/{item['metadata']['name']}"
        return [_of_use(use, name) for use in uses(item, contract.driver)]

    state = views.CLAIM_HEADERS.index("STATE")
    return Listing(RESOURCE_CLAIM, namespace, views.CLAIM_HEADERS, views.CLAIM_WIDE, entries, state)


def _of_use(use: Use, name: str) -> Entry:
    key = f"{use.namespace}/{name} {use.device} {use.node}"
    return Entry(key, views.claim_data(use), lambda wide: views.claim_row(use, wide), name)


async def once(client: KubeClient, listing: Listing, invocation: Invocation) -> None:
    """Print what there is. Raises ApiError."""
    items = (await client.list(listing.kind, listing.namespace))["items"]
    found = [entry for item in items for entry in listing.entries(item)]
    invocation.show(
        [entry.data for entry in found],
        listing.headers,
        lambda wide: (entry.row(wide) for entry in found),
        listing.wide,
        lambda: dict.fromkeys(entry.name for entry in found),
    )


async def follow(client: KubeClient, listing: Listing, invocation: Invocation) -> None:
    """Print what there is, then every change, until cancelled; a line of JSON each with `json`.

    Raises ApiError when the API says no; an API server that is away is waited for.
    """
    if invocation.output == "yaml":
        raise ConfigError("--watch prints table, wide, json or name")
    wide = invocation.output == "wide"
    shown = table.Growing([*listing.headers, *(listing.wide if wide else ())])
    reflector = Reflector(client, listing.kind, listing.namespace, on_error=_fail)
    listed: list[tuple[str, Entry]] = []
    first = True
    async with aclosing(reflector.run()) as news:
        async for event in news:
            if isinstance(event, Change):
                listed += _changed(event, listing)
                if first:
                    continue  # the whole first list in one table
            first = False
            text = _text(listed, listing, invocation, shown)
            listed = []
            if text:
                write(text)


def _fail(error: errors.ApiError) -> None:
    if not isinstance(error, errors.ApiUnavailable | errors.ApiExpired):
        raise error


def _changed(change: Change, listing: Listing) -> list[tuple[str, Entry]]:
    """(added, changed or removed; the line) for each line that is not what it was."""
    old = {entry.key: entry for entry in listing.entries(change.old)} if change.old else {}
    new = {entry.key: entry for entry in listing.entries(change.new)} if change.new else {}
    found = [("removed", entry) for key, entry in old.items() if key not in new]
    for key, entry in new.items():
        if key not in old:
            found.append(("added", entry))
        elif old[key].data != entry.data:
            found.append(("changed", entry))
    return found


def _text(
    lines: Sequence[tuple[str, Entry]],
    listing: Listing,
    invocation: Invocation,
    shown: table.Growing,
) -> str:
    if invocation.output == "json":
        return "".join(
            json.dumps({"event": event, "object": entry.data}) + "\n" for event, entry in lines
        )
    if invocation.output == "name":
        return "".join(f"{table.printable(entry.name)}\n" for _, entry in lines)
    rows = []
    for event, entry in lines:
        row = entry.row(invocation.output == "wide")
        if event == "removed":
            row[listing.state] = GONE
        rows.append(row)
    return shown.add(rows)
