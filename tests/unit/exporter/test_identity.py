# SPDX-License-Identifier: Apache-2.0
"""The certificate's way from the agent's files to the exporter's handshakes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fakes.certificates import certificates
from usbdra.errors import ConfigError, ExportFailed
from usbdra.exporter import identity
from usbdra.exporter.identity import RemoteIdentity, read_pems
from usbdra.exporter.messages import Pems
from usbdra.transport.ktls import Role
from usbdra.transport.tls import TlsFiles


class Agent:
    """Answers as the desk does, from a directory; counts."""

    def __init__(self, directory: Path) -> None:
        self.files = TlsFiles.in_directory(directory)
        self.asked: list[str] = []
        self.away = False

    async def __call__(self, have: str) -> Pems:
        self.asked.append(have)
        if self.away:
            raise ExportFailed("this node's agent does not answer")
        pems = read_pems(self.files)
        return Pems(have) if pems.stamp == have else pems


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(Path(shutil.copytree(certificates().a, tmp_path / "pki")))


@pytest.fixture(autouse=True)
def never_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "FRESH_SECONDS", 0.0)


async def test_a_rotation_needs_no_restart(agent: Agent) -> None:
    one = RemoteIdentity(agent)
    await one.load()
    first = one.context(Role.SERVER)
    await one.refresh()
    assert one.context(Role.SERVER) is first
    for name in ("tls.crt", "tls.key"):
        shutil.copy(certificates().b / name, agent.files.cert.parent)
    await one.refresh()
    assert one.context(Role.SERVER) is not first
    assert agent.asked[0] == ""
    assert agent.asked[1] == agent.asked[2] != ""


async def test_an_agent_that_is_away_changes_nothing(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    one = RemoteIdentity(agent)
    await one.load()
    first = one.context(Role.SERVER)
    agent.away = True
    await one.refresh()
    assert one.context(Role.SERVER) is first
    agent.away = False
    (agent.files.key).write_text("half of a ")
    await one.refresh()  # a rotation under way
    assert one.context(Role.SERVER) is first
    assert "keeping the previous certificate: cannot use" in caplog.text
    assert "half of" not in caplog.text


async def test_a_flood_asks_once(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "FRESH_SECONDS", 60.0)
    one = RemoteIdentity(agent)
    for _ in range(50):
        await one.refresh()
    assert len(agent.asked) == 1


async def test_nothing_yet(agent: Agent) -> None:
    agent.files.key.unlink()
    one = RemoteIdentity(agent)
    with pytest.raises(ConfigError, match=r"cannot use .*tls\.key: No such file"):
        await one.load()
    with pytest.raises(ConfigError, match="no certificate came"):
        one.context(Role.SERVER)


async def test_asked_again_at_once_it_is_still_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exporter that took this for a certificate would listen, and fail every peer."""
    monkeypatch.setattr(identity, "FRESH_SECONDS", 60.0)
    agent.away = True
    one = RemoteIdentity(agent)
    for expected in (ExportFailed, ConfigError):
        with pytest.raises(expected):
            await one.load()
    assert len(agent.asked) == 1


async def test_the_exporter_never_dials(agent: Agent) -> None:
    one = RemoteIdentity(agent)
    await one.load()
    with pytest.raises(ConfigError):
        one.context(Role.CLIENT)


def test_a_file_that_is_no_certificate(tmp_path: Path, agent: Agent) -> None:
    agent.files.ca.write_bytes(bytes(1 << 20))
    with pytest.raises(ConfigError, match=r"ca\.crt has more than 65536 bytes"):
        read_pems(agent.files)
