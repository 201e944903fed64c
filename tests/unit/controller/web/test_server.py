# SPDX-License-Identifier: Apache-2.0
"""Who gets what from the page, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.controller.make import CONTRACT, STICK, claim
from tests.unit.controller.web.conftest import ADMIN, FORBIDDEN, GUEST, NUSB, Events, Page, stick
from usbdra.controller.web import files, rows, server, stream
from usbdra.kube import errors
from usbdra.kube.types import NAMESPACE, RESOURCE_CLAIM, Kind, Object

WANTED = {"device": STICK, "namespace": "lab"}


async def test_files_come_with_a_strict_policy_and_are_not_sent_twice(page: Page) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/style.css", "text/css"),
    ):
        status, headers, body = await page.get(path)
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert {key: headers[key] for key in files.HEADERS} == files.HEADERS
        assert headers["Cache-Control"] == "no-cache"
        assert "SPDX-License-Identifier: Apache-2.0" in body
        again = await page.get(path, **{"If-None-Match": headers["ETag"]})
        assert (again[0], again[2]) == (304, "")
    policy = dict(part.partition(" ")[::2] for part in files.POLICY.split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"


@pytest.mark.parametrize("path", ["/other", "/index.html", "/page/../x", "/%2e%2e/x", "/api/other"])
async def test_nothing_but_its_files_is_served(page: Page, path: str) -> None:
    status, headers, body = await page.get(path)
    assert status == 404
    assert json.loads(body)["error"]["reason"] == "NotFound"
    assert headers["Content-Security-Policy"] == files.POLICY


@pytest.mark.parametrize("token", ["", "of-nobody", "x" * 7000, "with space"])
async def test_without_a_token_of_the_cluster_nothing_is_told(page: Page, token: str) -> None:
    status, headers, body = await page.get("/api/stream", token)
    assert status == 401
    assert headers["WWW-Authenticate"] == "Bearer"
    assert json.loads(body)["error"]["reason"] == "Unauthorized"
    status, said = await page.assign(WANTED, token)
    assert (status, said["error"]["reason"]) == (401, "Unauthorized")
    assert page.cluster.requests == []


async def test_a_guest_sees_and_does_not_assign(page: Page) -> None:
    page.cluster.put(NUSB, stick())
    status, said = await page.assign(WANTED, GUEST)
    assert (status, said["error"]["reason"]) == (403, "Forbidden")
    assert said["error"]["message"] == (
        f"gil may not patch nodeusbdevices.{CONTRACT.group} {STICK}: no RBAC rule"
    )
    assert page.cluster.requests == []
    assert page.cluster.reviews[-1]["spec"] == {
        "user": "gil", "uid": "uid-gil", "groups": ["people"],
        "resourceAttributes": {
            "verb": "patch", "group": CONTRACT.group, "version": "v1alpha2",
            "resource": "nodeusbdevices", "name": STICK,
        },
    }  # fmt: skip


async def test_an_assignment_is_written_with_the_users_own_token(page: Page) -> None:
    page.cluster.put(NUSB, stick())
    assert await page.assign(WANTED) == (200, WANTED)
    assert page.cluster.behalf == [ADMIN]
    assert page.cluster.all(NUSB)[0]["spec"]["assignedNamespace"] == "lab"
    assert (await page.assign({**WANTED, "namespace": ""}))[0] == 200
    assert page.cluster.all(NUSB)[0]["spec"]["assignedNamespace"] == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FORBIDDEN, 403),
        (errors.ApiNotFound("PATCH", 404, "NotFound", "gone"), 404),
        (errors.ApiInvalid("PATCH", 422, "Invalid", "no"), 422),
        (errors.ApiForbidden("PATCH", 401, "Unauthorized", "expired"), 401),
        (errors.ApiUnavailable("PATCH", 0, "NoAnswer", "no route"), 503),
    ],
)
async def test_what_the_api_server_says_to_an_assignment_is_passed_on(
    page: Page, monkeypatch: pytest.MonkeyPatch, error: errors.ApiError, status: int
) -> None:
    async def merge(kind: Kind, name: str, patch: Object) -> Object:
        raise error

    monkeypatch.setattr(page.cluster, "merge", merge)
    found, said = await page.assign(WANTED)
    assert (found, said["error"]["reason"]) == (status, error.reason)
    assert str(error) in said["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "headers"),
    [
        ("{", 400, {}),
        ("[" * 4000, 400, {}),
        ("[]", 400, {}),
        (b"\xff", 400, {}),
        ({"device": STICK}, 400, {}),
        ({**WANTED, "force": True}, 400, {}),
        ({**WANTED, "device": "../x"}, 400, {}),
        ({**WANTED, "device": 1}, 400, {}),
        ({**WANTED, "namespace": "A b"}, 400, {}),
        ({**WANTED, "namespace": None}, 400, {}),
        ({**WANTED, "namespace": "n" * 64}, 400, {}),
        ("x" * (server.MAX_BODY + 1), 413, {}),
        (WANTED, 415, {"Content-Type": "text/plain"}),
        (WANTED, 403, {"Origin": "https://elsewhere.example"}),
        (WANTED, 403, {"Sec-Fetch-Site": "cross-site"}),
        (WANTED, 403, {"Sec-Fetch-Site": "same-site"}),
    ],
)
async def test_what_is_no_request_of_the_page_is_refused(
    page: Page, body: Any, status: int, headers: dict[str, str]
) -> None:
    found, said = await page.assign(body, **headers)
    assert found == status, said
    assert said["error"]["message"]
    assert page.cluster.requests == []


async def test_its_own_origin_may_ask(page: Page) -> None:
    page.cluster.put(NUSB, stick())
    own = {"Origin": page.url, "Sec-Fetch-Site": "same-origin"}
    assert (await page.assign(WANTED, **own))[0] == 200


async def test_a_viewer_is_told_all_and_then_what_changes(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PACE_SECONDS", 0.0)
    page.cluster.put(NUSB, stick())
    page.cluster.put(RESOURCE_CLAIM, claim("lab", "c", pods=("p",), ready=True))
    page.cluster.put(RESOURCE_CLAIM, {"metadata": {"name": "other", "namespace": "lab"}})
    page.cluster.put(NAMESPACE, {"metadata": {"name": "lab"}})
    url, headers = f"{page.url}/api/stream", {"Authorization": f"bearer {ADMIN}"}
    async with page.session.get(url, headers=headers) as response:
        assert response.content_type == "text/event-stream"
        assert response.headers["Content-Security-Policy"] == files.POLICY
        events = Events(response)
        everything = ["devices", "slices", "claims", "namespaces", "assign"]
        assert await events.next() == (
            "hello", {"user": "anna", "may": dict.fromkeys(everything, True)},
        )  # fmt: skip
        event, told = await events.next()
        assert event == "rows"
        assert told.keys() == {"devices", "claims", "namespaces"}
        assert told["devices"][STICK]["is"]["product"] == "DataTraveler 3.0"
        assert told["claims"].keys() == {"lab/c"}
        assert told["claims"]["lab/c"]["uses"][0]["pods"] == ["p"]
        assert told["namespaces"] == {"lab": {}}
        assert await events.next() == ("all", {})
        page.cluster.put(NUSB, stick(namespace="lab"))
        event, told = await events.next()
        assert (event, told["devices"][STICK]["namespace"]) == ("rows", "lab")
        page.cluster.drop(NUSB, STICK)
        assert await events.next() == ("rows", {"devices": {STICK: None}})


async def test_a_viewer_is_told_only_what_they_may_list(page: Page) -> None:
    page.cluster.put(NUSB, stick())
    page.cluster.put(RESOURCE_CLAIM, claim("lab", "c"))
    url, headers = f"{page.url}/api/stream", {"Authorization": f"Bearer {GUEST}"}
    async with page.session.get(url, headers=headers) as response:
        events = Events(response)
        _, hello = await events.next()
        assert [name for name, yes in hello["may"].items() if yes] == ["devices"]
        _, told = await events.next()
        assert told.keys() == {"devices"}
    page.cluster.rights["gil"] = {"list resourceclaims"}
    status, _, body = await page.get("/api/stream", GUEST)
    assert status == 403
    wanted = f"gil may not list nodeusbdevices.{CONTRACT.group}"
    assert json.loads(body)["error"]["message"] == wanted


async def test_a_stream_ends_after_a_while_and_asks_again(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SECONDS", 0.0)
    url, headers = f"{page.url}/api/stream", {"Authorization": f"Bearer {ADMIN}"}
    async with page.session.get(url, headers=headers) as response:
        events = Events(response)
        assert [(await events.next())[0] for _ in range(2)] == ["hello", "end"]


async def test_viewers_connections_and_unknown_tokens_are_limited(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_VIEWERS", 0)
    assert (await page.get("/api/stream", ADMIN))[0] == 503
    found = [(await page.get("/api/stream", f"guess-{n}"))[0] for n in range(25)]
    assert found.count(401) in (19, 20, 21)
    assert found[-1] == 429
    assert (await page.get("/api/stream", ADMIN))[0] == 503, "who is known is not kept waiting"
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)
    assert await reader.read() == b""
    writer.close()


async def test_an_api_server_that_is_away_is_no_refusal(page: Page) -> None:
    page.cluster.fail(errors.ApiUnavailable("POST", 0, "NoAnswer", "no route"))
    status, said = await page.assign(WANTED)
    assert (status, said["error"]["reason"]) == (503, "ApiUnavailable")


async def test_a_mistake_of_ours_tells_nothing(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(token: str) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(page.server._gate, "who", broken)
    status, said = await page.assign(WANTED)
    assert status == 500
    assert "secret" not in json.dumps(said)


async def test_watches_run_while_somebody_looks_and_no_longer(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = page.server._watching
    monkeypatch.setattr(own, "_linger_seconds", 0.0)
    assert own._watched is None
    async with own.viewer() as first, own.viewer() as second:
        assert first is second
        await first.filled()
        assert own.viewers == 2
    await asyncio.sleep(0)
    async with own.viewer() as again:
        assert again is first, "who comes back at once finds it running"
    assert own._leaving is not None
    await own._leaving
    assert (first.ended, own._watched) == (True, None)


async def test_a_watch_that_breaks_ends_the_streams_and_not_the_process(
    page: Page, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(item: Object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rows, "namespace", wrong)
    page.cluster.put(NAMESPACE, {"metadata": {"name": "lab"}})
    status, _, _ = await page.get("/api/stream", ADMIN)
    assert status == 503
    assert "the page's watches failed" in caplog.text


def test_every_file_is_the_packages_own() -> None:
    assert set(files.load()) == {f"/{p.name}" for p in Path(files.FOLDER).iterdir()} - {
        "/index.html"
    } | {"/"}
