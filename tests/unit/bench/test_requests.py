# SPDX-License-Identifier: Apache-2.0
"""Lines as kube-apiserver 1.37 writes them to its audit log, shortened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.scale.requests import Audit, Request, watched, writes

AGENT = "system:serviceaccount:usbdra:usbdra-agent"


def event(verb: str, uri: str, stage: str = "ResponseComplete", **what: str) -> dict[str, Any]:
    reference = {"objectRef": what} if what else {}
    user = {"username": AGENT}
    return {"verb": verb, "requestURI": uri, "stage": stage, "user": user, **reference}


def logged(folder: Path, *events: dict[str, Any], rest: str = "") -> list[Request]:
    audit = Audit(folder, [AGENT])
    before = audit.mark()
    lines = "".join(json.dumps(each) + "\n" for each in events)
    (folder / "audit.log").write_text(lines + rest)
    return audit.since(before)


def test_a_watch_is_one_request_with_its_selectors(tmp_path: Path) -> None:
    uri = "/apis/resource.k8s.io/v1/resourceslices?labelSelector=a%3Db%2Cc%3Dd&watch=true"
    begun = event("watch", uri, "ResponseStarted", resource="resourceslices")
    ended = event("watch", uri, resource="resourceslices")
    (found,) = logged(tmp_path, begun, ended)
    assert found == Request("usbdra-agent", "watch", "resourceslices", "a=b,c=d", "")


def test_writes_are_counted_by_kind_without_those_left_out(tmp_path: Path) -> None:
    status = {"resource": "nodeusbdevices", "subresource": "status", "name": "x"}
    found = logged(
        tmp_path,
        event("patch", "/x", resource="nodeusbdevices", name="x"),
        event("patch", "/x/status", **status),
        event("patch", "/x/status", **status),
        event("update", "/l", resource="leases", name="l"),
        event("get", "/version"),
    )
    assert writes(found, "leases") == {"patch nodeusbdevices": 1, "patch nodeusbdevices/status": 2}


def test_a_list_of_all_shows(tmp_path: Path) -> None:
    found = logged(
        tmp_path,
        event("list", "/a?limit=500", resource="resourceclaims"),
        event("list", "/b?fieldSelector=metadata.name%3Dx", resource="configmaps"),
    )
    assert watched(found) == {"resourceclaims": {""}, "configmaps": {"metadata.name=x"}}


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    whole = event("get", "/x", resource="pods", name="x")
    assert len(logged(tmp_path, whole, rest='{"verb": "ge')) == 1


def test_the_policy_notes_these_accounts_alone(tmp_path: Path) -> None:
    flags = dict(flag.split("=", 1) for flag in Audit(tmp_path, [AGENT]).flags)
    policy = json.loads(Path(flags["--audit-policy-file"]).read_text())
    assert policy["rules"] == [{"level": "Metadata", "users": [AGENT]}, {"level": "None"}]
