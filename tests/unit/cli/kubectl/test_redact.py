# SPDX-License-Identifier: Apache-2.0
"""Planted secrets do not leave the cluster; what helps does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller.make import CONTRACT, DRIVER
from usbdra.cli.kubectl.redact import REMOVED, cleaned, scrub

GROUP = CONTRACT.group
PLANTED = "s3cr3t-Planted"
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{PLANTED}\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (KEY + "\nafter", "\nafter"),
        (KEY.partition("\n-----END")[0], ""),  # cut in the middle
        (f"Authorization: Bearer {PLANTED}, next", ", next"),
        (f"got basic {PLANTED}", "got basic"),
        (f"https://user:{PLANTED}@host/path", "@host/path"),
        (f"proxy=http://:{PLANTED}@h", "@h"),
        (f"password={PLANTED} x", " x"),
        (f'{{"token": "{PLANTED}", "node": "a"}}', '"node": "a"'),
        (f"api-key: '{PLANTED}'", "api-key"),
        (f"client_secret={PLANTED}&a=b", "&a=b"),
        (f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.{PLANTED} sent", " sent"),
    ],
)
def test_what_has_the_form_of_a_credential_is_taken_out_and_the_rest_kept(
    text: str, kept: str
) -> None:
    assert PLANTED not in scrub(text)
    assert REMOVED in scrub(text)
    assert kept in scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        "claim lab/stick (uid) is whole again",
        "peer node-b was refused: NotAuthenticated: certificate of another CA",
        "exporter listens on 192.0.2.1:3241, see https://[2001:db8::1]:3241/x",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert scrub(text) == text


@given(st.text(max_size=300))
def test_a_credential_is_found_in_any_text(text: str) -> None:
    assert PLANTED not in scrub(f"{text} token={PLANTED} {text}")


def pod() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": PLANTED},
            "managedFields": [{"x": PLANTED}],
            "selfLink": PLANTED,
        },
        "spec": {
            "containers": [
                {
                    "args": ["--port=3241", f"--token={PLANTED}"],
                    "env": [
                        {"name": "DB_URL", "value": PLANTED},
                        {"name": "USBDRA_ALLOWED_CIDRS", "value": "192.0.2.0/24"},
                        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    ],
                }
            ]
        },
        "status": {"phase": "Running"},
        "data": {"key": PLANTED},
        "stringData": {"password": PLANTED},
    }


def test_objects_lose_what_nobody_named() -> None:
    item = pod()
    item["metadata"]["annotations"][f"{GROUP}/reset"] = "now"
    found = cleaned(item, GROUP)
    assert PLANTED not in json.dumps(found)
    container = found["spec"]["containers"][0]
    assert container["args"] == ["--port=3241", f"--token={REMOVED}"]
    assert container["env"][1]["value"] == "192.0.2.0/24"
    assert container["env"][2]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert found["metadata"]["annotations"][f"{GROUP}/reset"] == "now"
    assert found["status"] == {"phase": "Running"}


def test_a_field_named_as_a_secret_has_no_text() -> None:
    item = {"metadata": {"name": "x"}, "spec": {"apiKey": PLANTED, "tokens": {"n": 1}, "n": "kept"}}
    assert cleaned(item, GROUP)["spec"] == {"apiKey": REMOVED, "tokens": {"n": 1}, "n": "kept"}


def test_templates_and_parameters_of_other_drivers_are_cleaned_too() -> None:
    parameters = {"driver": "gpu.example.com", "parameters": {"licence": PLANTED}}
    ours = {"driver": DRIVER, "parameters": {"device": {"name": "x"}}}
    spec = {"template": pod(), "config": [{"opaque": parameters}, {"opaque": ours}]}
    found = cleaned({"metadata": {"name": "d"}, "spec": spec}, GROUP)
    assert PLANTED not in json.dumps(found)
    assert found["spec"]["config"][1]["opaque"] == ours
