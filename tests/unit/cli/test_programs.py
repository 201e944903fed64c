# SPDX-License-Identifier: Apache-2.0
"""Commands that stay: serve and watch as processes of their own; pki on real files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.sysfs import SysTree
from tests.unit.cli.conftest import Cli
from usbdra.agent.outside import Shown as One
from usbdra.errors import PeerRefused
from usbdra.importer.dial import dial
from usbdra.pki import authority, trust
from usbdra.pki.request import read_peer_request
from usbdra.resetword import make
from usbdra.transport.ktls import Encryption, Role
from usbdra.transport.tls import context_of
from usbdra.types import ClaimUid
from usbdra.usbip.errands import Reset
from usbdra.usbip.extension import ClaimRef, InventoryRequest


@contextmanager
def program(tree: SysTree, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """`usbdra ARGUMENTS` on this tree; ended with SIGTERM, which must give exit code 0."""
    env = {**os.environ, "USBDRA_ROOT": str(tree.root), "USBDRA_RUN_DIR": str(tree.root / "run"),
           "USBDRA_NODE": "node-a", **more}  # fmt: skip
    command = [sys.executable, "-m", "usbdra", *arguments]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def next_object(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    found: dict[str, object] = json.loads(process.stdout.readline())
    return found


def test_serve_says_where_it_listens_and_offers_what_may_cross_nodes(
    cli: Cli, tree: SysTree
) -> None:
    with program(tree, "serve", "--plain", "--port", "0", "--listen", "127.0.0.1", "-o",
                 "json") as serving:  # fmt: skip
        said = next_object(serving)
        assert (said["address"], said["encrypted"]) == ("127.0.0.1", False)
        found = cli("remote", "127.0.0.1", "--plain", "--port", said["port"], "-o", "json").json
        assert [one["busID"] for one in found] == ["1-1.4"]


def test_serve_only_named_devices(cli: Cli, tree: SysTree) -> None:
    with program(tree, "serve", "--plain", "--port", "0", "--listen", "127.0.0.1", "--device",
                 "1-1.2", "-o", "json") as serving:  # fmt: skip
        said = next_object(serving)
        assert (
            cli("remote", "127.0.0.1", "--plain", "--port", said["port"], "-o", "json").json == []
        )


def test_serve_with_a_certificate_of_a_cluster_gives_nothing_without_a_grant(
    cli: Cli, tree: SysTree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The host's half of docs/outside-hosts.md: request, accept, serve."""
    pki, now = tmp_path_factory.mktemp("pki"), datetime.now(UTC)
    ca = authority.make_authority("usbdra CA", now)
    request = read_peer_request(cli("pki", "request", "pi", "--dir", pki).out.encode())
    cert = authority.sign_peer(ca, request.peer, request.public_key, now, timedelta(days=1))
    bundle = pki / "pi.pem"
    bundle.write_bytes(trust.write_bundle([cert, ca.cert]))
    assert "outside/pi" in cli("pki", "accept", bundle, "--dir", pki).out

    def identity(peer: str, *uris: str) -> One:
        key = authority.new_key()
        signed = authority.sign_peer(ca, peer, key.public_key(), now, timedelta(days=1), uris=uris)
        pair = authority.Pair(signed, key)
        return One(context_of(pair.cert_pem(), pair.key_pem(), ca.cert_pem(), Role.CLIENT))

    async def visits(port: int) -> None:
        connect = partial(
            dial, "127.0.0.1", port, expect="outside/pi", encryption=Encryption.ALLOWED
        )
        node, leader, other = map(identity, ("node-b", "cluster/controller", "outside/pc"))
        async with await connect(identity=leader) as link:
            found = await link.visit(InventoryRequest(trust.write_bundle([ca.cert]).decode()))
            assert [one.name for one in found.devices] == ["usb-0781-0316-4c53"]
            assert (found.request, found.sessions, bool(found.edition)) == ("", (), True)
            wish = Reset("another", make(now, force=True).word)
            answer = (await link.visit(InventoryRequest(reset=wish))).reset
            assert answer is not None
            assert answer.text == "not reset: this host offers no device another"
        claim = ClaimRef("lab", "one", ClaimUid("u1"))
        for who, text in ((node, "shows no grant"), (leader, "alone"), (other, "is no node")):
            async with await connect(identity=who) as link:
                with pytest.raises(PeerRefused, match=text):
                    await link.grant("usb-0781-0316-4c53", claim=claim)

    more = {"USBDRA_PKI_DIR": str(pki), "USBDRA_ENCRYPTION": "Allowed"}
    words = ("serve", "--port", "0", "--listen", "127.0.0.1", "-o", "json")
    with program(tree, *words, **more) as serving:
        asyncio.run(visits(int(str(next_object(serving)["port"]))))


def test_watch_shows_the_present_devices_first(tree: SysTree) -> None:
    with program(tree, "watch", "-o", "json") as watching:
        first, second = next_object(watching), next_object(watching)
    assert [first["event"], second["event"]] == ["added", "added"]
    assert isinstance(second["device"], dict)
    assert second["device"]["name"] == "usb-0781-0316-4c53"


def test_bind_refuses_what_is_not_offered(
    cli: Cli, tree: SysTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USBDRA_ROOT", str(tree.root))
    result = cli("bind", "1-1.2")
    assert result.code == 4
    assert "is not offered: 1.5 Mbit/s devices stay on their node" in result.err
    result = cli("unbind", "usb-0781-0316-4c54")
    assert result.code == 3
    assert "did you mean usb-0781-0316-4c53" in result.err


def test_pki_from_nothing_to_a_nodes_certificate(cli: Cli, tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    made = cli("pki", "init", "--dir", pki, "-o", "json").json
    assert [(one["kind"], one["node"]) for one in made] == [("ca", None)]
    (issued,) = cli("pki", "issue", "a", "--dir", pki, "--host", "10.0.0.5", "-o", "json").json
    assert (issued["kind"], issued["node"], issued["file"]) == (
        "node", "a", str(pki / "nodes/a/tls.crt"),
    )  # fmt: skip
    assert "10.0.0.5" in issued["hosts"]
    assert sorted(p.name for p in (pki / "nodes/a").iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    rows = cli("pki", "show", pki).lines
    assert rows[0].split() == ["NAME", "KIND", "DAYS", "LEFT", "HOSTS", "FILE"]
    assert [line.split()[0] for line in rows[1:]][-1] == "a"


def test_pki_never_overwrites_without_force(cli: Cli, tmp_path: Path) -> None:
    assert cli("pki", "init", "--dir", tmp_path / "pki").code == 0
    refused = cli("pki", "init", "--dir", tmp_path / "pki")
    assert refused.code == 2
    assert "force replaces it" in refused.err
    assert cli("pki", "init", "--dir", tmp_path / "pki", "--force").code == 0
