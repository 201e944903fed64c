# SPDX-License-Identifier: Apache-2.0
"""Who asked the API server for what: its own audit log of some accounts.

Owns the policy and the reading of the log. A watch is noted when it begins, with the selectors by
which it was asked for; any other request when it has been answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_MEGABYTES = 10_000  # no log of ours is turned over


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `what` is its resource, with a subresource `pods/status`."""

    user: str
    verb: str
    what: str
    selectors: str
    """As the URL has them: "" for a request of all."""
    name: str


class Audit:
    """The audit log of the accounts in `users`, in `folder`."""

    def __init__(self, folder: Path, users: Sequence[str]) -> None:
        self._policy, self._log = folder / "audit-policy.json", folder / "audit.log"
        rules = [{"level": "Metadata", "users": list(users)}, {"level": "None"}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
        self._policy.write_text(json.dumps({**policy, "omitStages": ["RequestReceived"]}))
        self._log.touch()

    @property
    def flags(self) -> list[str]:
        """For kube-apiserver."""
        return [
            f"--audit-policy-file={self._policy}",
            f"--audit-log-path={self._log}",
            f"--audit-log-maxsize={_MEGABYTES}",
        ]

    def mark(self) -> int:
        """Now, for `since`."""
        return self._log.stat().st_size

    def since(self, mark: int) -> list[Request]:
        """The requests noted after that; a line that is being written is left for later."""
        with self._log.open("rb") as log:
            log.seek(mark)
            lines = log.read().split(b"\n")[:-1]
        return list(requests(json.loads(line) for line in lines))


def requests(events: Iterable[dict[str, Any]]) -> Iterable[Request]:
    """Events of audit.k8s.io/v1 as requests, each once."""
    for event in events:
        verb, stage = event["verb"], event["stage"]
        if stage != ("ResponseStarted" if verb == "watch" else "ResponseComplete"):
            continue
        what = event.get("objectRef") or {}
        asked = parse_qs(urlsplit(event["requestURI"]).query)
        chosen = [asked.get(key, [""])[0] for key in ("labelSelector", "fieldSelector")]
        parts = (what.get("resource", ""), what.get("subresource", ""))
        yield Request(
            user=event["user"]["username"].rpartition(":")[2],
            verb=verb,
            what="/".join(part for part in parts if part),
            selectors=" ".join(part for part in chosen if part),
            name=what.get("name", ""),
        )


def writes(found: Iterable[Request], *but: str) -> Counter[str]:
    """{"patch nodeusbdevices/status": 3}: what was written, without the kinds in `but`."""
    return Counter(f"{r.verb} {r.what}" for r in found if r.verb in WRITES and r.what not in but)


def watched(found: Iterable[Request]) -> dict[str, set[str]]:
    """{resource: selectors it is watched or listed by}."""
    kinds: dict[str, set[str]] = {}
    for request in found:
        if request.verb in ("watch", "list"):
            kinds.setdefault(request.what, set()).add(request.selectors)
    return kinds
