# SPDX-License-Identifier: Apache-2.0
"""Every folder of deploy/examples, applied as it is, with devices as its text says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.cluster.claims import echo
from tests.cluster.driver import ROOT
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space

EXAMPLES = ROOT / "deploy/examples"
STICK: dict[str, Any] = {"serial": "DEMO0001"}


@dataclass(frozen=True)
class Example:
    """Devices to plug into node a, a script for the first pod, and what it prints."""

    devices: tuple[dict[str, Any], ...]
    script: str
    prints: str


CASES = {
    "any-of-a-model": Example((STICK,), "echo $USBDRA_USB_SERIAL", "DEMO0001"),
    "deployment": Example((STICK,), "ls /dev/usbdra/usb", "device"),
    "device-by-serial": Example((STICK,), "echo $USBDRA_USB_SERIAL", "DEMO0001"),
    "disk": Example(
        (STICK,), "dd if=/dev/usbdra/usb/block0 bs=512 count=1 2>/dev/null | wc -c", "512"
    ),
    "extended-resource": Example((STICK,), "cat /dev/usbdra/*/device | head -c 2 | wc -c", "2"),
    "first-available": Example(
        (STICK, {"serial": "DEMO0002", "speed": "super"}), "echo $USBDRA_USB_SERIAL", "DEMO0002"
    ),
    "owner-and-children": Example(
        ({"serial": "DEMO0003", "kind": "serial"},),
        f"stat -c '%u %g %a' $ADAPTER_NODE; {echo('$ADAPTER_TTY0')}",
        "1000 1000 660\nhello",
    ),
    "shared-claim": Example((STICK,), "echo $USBDRA_USB_SERIAL", "DEMO0001"),
    "two-devices": Example(
        (STICK, {"serial": "DEMO0004", "kind": "keyboard", "speed": "high"}),
        "cd /dev/usbdra; ls keyboard; ls stick",
        "device\nhidraw0\ndevice",
    ),
}


def test_every_example_has_its_case_and_its_line_in_the_list() -> None:
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert folders == sorted(CASES)
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in folders if f"({name}/manifest.yaml)" not in text] == []


@pytest.mark.parametrize("folder", sorted(CASES))
def test_an_example_runs_as_it_is(folder: str, gadgets: Gadgets, space: Space) -> None:
    example, manifest = CASES[folder], EXAMPLES / folder / "manifest.yaml"
    for options in example.devices:
        gadgets.plug("a", **options)
    for options in example.devices:  # the scheduler takes the better one of those it may take
        gadgets.published(options["serial"], tainted=False)
    space.apply(manifest)
    try:
        pods = [space.run(name).metadata.name for name in _pods(space, manifest.read_text())]
        assert space.shell(pods[0], example.script).replace("\r", "") == example.prints
    finally:
        # some of it may be the cluster's
        space.api.kubectl("delete", "-f", str(manifest), "-n", space.name, "--grace-period=1")


def _pods(space: Space, text: str) -> list[str]:
    """Names of the pods that a manifest makes, itself or by a Deployment."""
    names = []
    for item in yaml.safe_load_all(text):
        if item["kind"] == "Pod":
            names.append(item["metadata"]["name"])
        if item["kind"] == "Deployment":
            names += space.started(item["spec"]["selector"]["matchLabels"])
    return names
