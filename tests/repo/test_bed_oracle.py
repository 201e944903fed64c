# SPDX-License-Identifier: Apache-2.0
"""What tests on the beds are told by their own look at a node's kernel."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

usb: Any = import_module("tests.bed.guest.usb")  # the node's own Python, without types


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(usb, "DEVICES", str(tmp_path))
    path = tmp_path / "1-1"
    path.mkdir()
    (path / "serial").write_text("card\n")
    (path / "driver").symlink_to("../usbip-host")
    return path


def test_a_device_given_back_during_the_look_is_told_with_the_driver_it_came_back_to(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = usb.children

    def given_back_meanwhile(real: str) -> dict[str, list[str]]:
        (device / "driver").unlink()
        (device / "driver").symlink_to("../usb")
        (device / "1-1:1.0" / "sound" / "card0").mkdir(parents=True, exist_ok=True)
        found: dict[str, list[str]] = children(real)
        return found

    monkeypatch.setattr(usb, "children", given_back_meanwhile)
    told = usb.wait("card", child="cards", seconds=0.0)
    assert (told["driver"], told["cards"]) == ("usb", ["card0"])


def test_a_device_between_two_drivers_has_none(device: Path) -> None:
    (device / "driver").unlink()
    assert usb.describe("1-1")["driver"] is None
