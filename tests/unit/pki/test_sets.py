# SPDX-License-Identifier: Apache-2.0
"""Sets change whole; when a certificate is renewed."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from usbdra.errors import ConfigError, Refused
from usbdra.pki import authority, held, sets, trust
from usbdra.transport.ktls import Role
from usbdra.transport.tls import Identity, TlsFiles

NOW = datetime.now(UTC).replace(microsecond=0)
UID = "6a3d2a6e-6f2f-4e8e-9c56-0f2c35b6d9f1"
CA = authority.make_authority("usbdra CA", NOW)


def contents(pair: authority.Pair) -> dict[str, bytes]:
    return {"tls.key": pair.key_pem(), "tls.crt": pair.cert_pem(), "ca.crt": CA.cert_pem()}


def issue(hours: int = 24, *, hosts: tuple[str, ...] = (), uid: str = UID) -> authority.Pair:
    key = authority.new_key()
    cert = authority.sign_node(
        CA, "node-a", hosts, key.public_key(), NOW, timedelta(hours=hours), uid
    )
    return authority.Pair(cert, key)


def test_a_set_is_private_and_followed_by_an_identity(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    first, second = issue(), issue()
    link = sets.publish(directory, contents(first))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in link.iterdir()} == {0o600}
    identity = Identity(TlsFiles.in_directory(link))
    before = identity.context(Role.SERVER)
    sets.publish(directory, contents(second))
    assert identity.context(Role.SERVER) is not before
    found = held.read_held(link)
    assert found is not None
    assert found.pair.cert == second.cert


def test_readers_of_the_set_before_are_not_disturbed_older_ones_go(tmp_path: Path) -> None:
    names = []
    for _ in range(4):
        names.append(sets.publish(tmp_path, contents(issue())).readlink().name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[-2:], sets.CURRENT])


def test_what_a_kill_left_behind_is_swept(tmp_path: Path) -> None:
    sets.publish(tmp_path, contents(issue()))
    (tmp_path / "set-dead").mkdir()
    (tmp_path / f".{sets.CURRENT}.dead").symlink_to("set-dead")
    sets.publish(tmp_path, contents(issue()))
    assert len(list(tmp_path.iterdir())) == 3


def test_nothing_usable_is_none(tmp_path: Path) -> None:
    assert held.read_held(tmp_path / sets.CURRENT) is None
    link = sets.publish(tmp_path, {**contents(issue()), "tls.key": issue().key_pem()})
    assert held.read_held(link) is None


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        sets.publish(tmp_path / "file" / "pki", contents(issue()))


def due(pair: authority.Pair, now: datetime = NOW, **changes: object) -> datetime:
    wanted: dict[str, object] = {
        "node": "node-a", "node_uid": UID, "addresses": ("10.0.0.5",), "part": 2 / 3, **changes,
    }  # fmt: skip
    bundle = wanted.pop("bundle", (CA.cert,))
    return held.renew_at(pair.cert, bundle, now, **wanted)  # type: ignore[arg-type]


def test_renewed_after_two_thirds_of_its_life() -> None:
    pair = issue(24, hosts=("10.0.0.5", "10.0.0.6"))
    life = timedelta(hours=24, minutes=5)
    assert due(pair) == NOW - timedelta(minutes=5) + life * (2 / 3)
    assert due(pair, NOW + timedelta(hours=20)) == NOW + timedelta(hours=20)


@pytest.mark.parametrize(
    "changes",
    [
        {"node_uid": "another"},
        {"addresses": ("10.0.0.7",)},
        {"bundle": ()},
        {"bundle": (authority.make_authority("usbdra CA", NOW).cert,)},
    ],
    ids=["node made anew", "address changed", "no bundle", "CA not believed any more"],
)
def test_renewed_at_once_when_it_is_not_what_the_node_needs(changes: dict[str, Any]) -> None:
    assert due(issue(hosts=("10.0.0.5",)), **changes) == NOW


def test_an_expired_one_is_renewed_at_once() -> None:
    later = NOW + timedelta(hours=25)
    assert due(issue(24, hosts=("10.0.0.5",)), later) == later


def test_an_answer_that_others_would_not_believe_is_refused() -> None:
    pair = issue()
    held.require(pair.cert, pair.key.public_key(), (CA.cert,), NOW)
    with pytest.raises(Refused, match="another key"):
        held.require(pair.cert, issue().key.public_key(), (CA.cert,), NOW)
    other = authority.make_authority("usbdra CA", NOW)
    with pytest.raises(Refused, match="not in the trust bundle"):
        held.require(pair.cert, pair.key.public_key(), (other.cert,), NOW)
    assert trust.write_bundle([]) == b""
