# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb exporter`: what is written where, and what is said."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.controller.make import CONTRACT
from usbdra.cli.kubectl import hosts
from usbdra.kube.types import CONFIG_MAP, CSR, Kind
from usbdra.pki import hostfiles, trust
from usbdra.pki.authority import make_authority, sign_peer
from usbdra.pki.request import read_peer_request

NOW = datetime.now(UTC)
CA = make_authority("usbdra CA", NOW)


@pytest.fixture
def signing(cluster: Cluster) -> Cluster:
    """A controller that signs what was approved."""
    bundle = {"ca.crt": trust.write_bundle([CA.cert]).decode()}
    cluster.put(
        CONFIG_MAP, {"metadata": {"name": "usbdra-trust", "namespace": "usbdra"}, "data": bundle}
    )

    def sign(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        status = item.get("status") or {}
        if kind != CSR or "certificate" in status or not status.get("conditions"):
            return
        request = read_peer_request(base64.b64decode(item["spec"]["request"]))
        cert = sign_peer(CA, request.peer, request.public_key, NOW, timedelta(days=1))
        pem = base64.b64encode(trust.write_bundle([cert])).decode()
        cluster.put(CSR, {**item, "status": {**status, "certificate": pem}})

    cluster.after_write = sign
    return cluster


def test_a_host_is_added_with_a_key_that_stays_there(
    usb: Cli, signing: Cluster, tmp_path: Path
) -> None:
    request = tmp_path / "pi.csr"
    request.write_bytes(hostfiles.request(tmp_path / "host", "pi"))
    result = usb("exporter", "add", "pi", "--address", "192.0.2.7", "--csr", request)
    assert result.code == 0
    assert "PRIVATE KEY" not in result.out + result.err
    path = hostfiles.accept(tmp_path / "host", result.out.encode(), NOW, "pi.pem")
    assert path.exists()
    assert "usbdra pki accept FILE" in result.err
    (host,) = signing.all(CONTRACT.host)
    assert host["spec"] == {"address": "192.0.2.7"}
    (csr,) = signing.all(CSR)
    assert csr["spec"]["signerName"] == CONTRACT.key("usbdra-host")
    assert csr["status"]["conditions"][0]["reason"] == "ExporterAdded"
    # again, for the next certificate: the address stays
    assert usb("exporter", "add", "pi", "--csr", request).code == 0


def test_a_key_made_here_is_written_where_the_user_said_and_nowhere_else(
    usb: Cli, signing: Cluster, tmp_path: Path
) -> None:
    words = ("exporter", "add", "pi", "--address", "192.0.2.7", "--with-key", tmp_path / "pi")
    result = usb(*words)
    assert result.code == 0
    assert "PRIVATE KEY" not in result.out + result.err
    assert {one.name for one in (tmp_path / "pi").iterdir()} == {"tls.key", "tls.crt", "ca.crt"}
    assert (tmp_path / "pi" / "tls.key").stat().st_mode & 0o777 == 0o600
    again = usb(*words)
    assert (again.code, "there already is" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("pi", "--address", "192.0.2.7"), "give --csr FILE"),
        (("Pi", "--with-key", "DIR"), "not a host's name"),
        (("pi", "--with-key", "DIR"), "host pi is new: give its --address"),
        (("pc", "--csr", "CSR"), "is a request of outside/pi, not of host pc"),
    ],
)
def test_what_cannot_be_added_says_what_helps(
    usb: Cli, signing: Cluster, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    request = tmp_path / "pi.csr"
    request.write_bytes(hostfiles.request(tmp_path / "host", "pi"))
    paths = {"DIR": str(tmp_path / "out"), "CSR": str(request)}
    result = usb("exporter", "add", *(paths.get(word, word) for word in words))
    assert (result.code, text in result.err) == (2, True), result.err
    assert not (tmp_path / "out").exists()


def test_a_controller_that_is_away_or_refuses_is_said(
    usb: Cli, signing: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("exporter", "add", "pi", "--address", "192.0.2.7", "--with-key", tmp_path / "pi")
    signing.after_write = lambda verb, kind, item: None
    monkeypatch.setattr(hosts, "ANSWER_SECONDS", 0.05)
    assert "is usbdra controller running" in usb(*words).err

    def refuse(verb: str, kind: Kind, item: dict[str, Any]) -> None:
        if kind == CSR and len((item.get("status") or {}).get("conditions") or ()) == 1:
            no = {"type": "Failed", "status": "True", "message": "no such host"}
            signing.put(CSR, {**item, "status": {"conditions": [no]}})

    signing.after_write = refuse
    monkeypatch.setattr(hosts, "ANSWER_SECONDS", 5.0)
    assert "no such host" in usb(*words).err
    assert not (tmp_path / "pi").exists()


def test_hosts_are_listed_and_removed_when_nobody_uses_them(usb: Cli, cluster: Cluster) -> None:
    def state(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
        return {"type": kind, "status": status, "reason": reason, "message": message}

    cluster.put(
        CONTRACT.host,
        {
            "metadata": {"name": "pi"},
            "spec": {"address": "192.0.2.7"},
            "status": {
                "devices": 2,
                "certificateUntil": "Jan  1 00:00:00 2030 GMT",
                "conditions": [state("Ready", "False", "Unreachable", "no route")],
            },
        },
    )
    assert [line.split() for line in usb("exporter", "list").out.splitlines()] == [
        ["NAME", "ADDRESS", "READY", "DEVICES", "CERTIFICATE", "UNTIL"],
        ["pi", "192.0.2.7", "Unreachable", "2", "Jan", "1", "00:00:00", "2030", "GMT"],
    ]
    assert "no route" in usb("exporter", "list", "-o", "wide").out
    name = f"usbexporterhost.{CONTRACT.group}/pi\n"
    assert usb("exporter", "list", "-o", "name").out == name
    used = {"host": "pi", "conditions": [state("Attached", "True", "AttachedToPod", "pod lab/p")]}
    cluster.put(CONTRACT.node_device, {"metadata": {"name": "stick"}, "status": used})
    refused = usb("exporter", "remove", "pi")
    assert (refused.code, "pod lab/p" in refused.err) == (4, True), refused.err
    assert usb("exporter", "remove", "pi", "--force").out == "host pi: removed\n"
    assert cluster.all(CONTRACT.host) == []
    assert "there is no host pi" in usb("exporter", "remove", "pi", "--force").err
