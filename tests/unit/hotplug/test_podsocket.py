# SPDX-License-Identifier: Apache-2.0
"""The way to a pod's socket: nothing outside its volume is reached."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.qemu import short
from tests.unit.hotplug.conftest import POD
from usbdra._native import sockfd
from usbdra.errors import PlugFailed
from usbdra.hotplug.podsocket import connect
from usbdra.hotplug.qmp import MachineGone


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        with short(path) as name:
            server.bind(name)
        server.listen(1)
        yield server


def test_a_socket_of_the_volume_is_connected(tmp_path: Path, volume: Path) -> None:
    (volume / "deep").mkdir()
    with listening(volume / "deep/s") as server, connect(tmp_path, POD, "run/deep/s") as sock:
        accepted, _ = server.accept()
        sock.send(b"x")
        assert accepted.recv(1) == b"x"
        accepted.close()


def test_a_link_is_never_followed_wherever_it_is(tmp_path: Path, volume: Path) -> None:
    other = tmp_path / "o"
    other.mkdir()
    with listening(other / "s"):
        (volume / "s").symlink_to(other / "s")
        (volume / "d").symlink_to(other)
        for where in ("run/s", "run/d/s"):
            with pytest.raises(PlugFailed):
                connect(tmp_path, POD, where)


@pytest.mark.parametrize(
    "where", ["", "run", "run/", "/run/s", "run/../run/s", "run/./s", "run//s", "a/" * 20 + "s"]
)
def test_a_name_that_is_no_way_down_is_refused(tmp_path: Path, volume: Path, where: str) -> None:
    with pytest.raises(PlugFailed, match="does not name a socket as VOLUME/PATH"):
        connect(tmp_path, POD, where)


@pytest.mark.parametrize("pod", ["", "..", "x/../y", POD + "/.."])
def test_a_pod_is_a_uid(tmp_path: Path, pod: str) -> None:
    with pytest.raises(PlugFailed, match="is no UID of a pod"):
        connect(tmp_path, pod, "run/s")


def test_what_is_no_socket_is_refused(tmp_path: Path, volume: Path) -> None:
    (volume / "s").write_text("")
    with pytest.raises(PlugFailed, match="run/s is no socket, or a link to one"):
        connect(tmp_path, POD, "run/s")


def test_a_pod_that_is_gone_a_socket_that_is_not_there_and_nobody_who_listens(
    tmp_path: Path, volume: Path
) -> None:
    with listening(volume / "left"):
        pass
    for pod, where in ((POD.replace("0", "1"), "run/s"), (POD, "run/s"), (POD, "run/left")):
        with pytest.raises(MachineGone):
            connect(tmp_path, pod, where)


def test_a_listener_of_another_user_is_refused(
    tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockfd, "peer_credentials", lambda fd: (1, 4711, 4711))
    with listening(volume / "s"), pytest.raises(PlugFailed, match="user 4711 listens"):
        connect(tmp_path, POD, "run/s")


def test_no_descriptor_is_left_of_a_way_that_ends(tmp_path: Path, volume: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MachineGone) as caught:
        connect(tmp_path, POD, "run/s")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOENT
    assert len(os.listdir("/proc/self/fd")) == before
