# SPDX-License-Identifier: Apache-2.0
"""Claims of an assigned device: their form by reach and layout, and when they are renewed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controller.make import CONTRACT, DRIVER, STICK, device
from usbdra.controller import templates
from usbdra.controller.published import Reach
from usbdra.plugin.config import Target, merge

OWNER = {"apiVersion": CONTRACT.device.api_version, "kind": "USBDevice", "name": "x", "uid": "u"}
SELECTOR = f'device.attributes["{DRIVER}"].name == "{STICK}" && device.attributes["{DRIVER}"].node'
FENCE = {
    "key": "virtualization.deckhouse.io/assigned",
    "operator": "Equal",
    "value": "lab",
    "effect": "NoSchedule",
}


def spec(reach: Reach, **attributes: Any) -> dict[str, Any]:
    made = templates.claim_spec(device(reach=reach, **attributes), "lab", CONTRACT)["devices"]
    assert isinstance(made, dict)
    return made


def test_seen_by_all_nodes_device_and_link_are_tied() -> None:
    made = spec(Reach.CLUSTER)
    usb, link = made["requests"]
    assert usb["exactly"]["selectors"] == [{"cel": {"expression": f'{SELECTOR} == "a"'}}]
    assert usb["exactly"]["tolerations"] == [FENCE]
    assert [way["deviceClassName"] for way in link["firstAvailable"]] == [
        CONTRACT.device_class("direct"),
        CONTRACT.device_class("vhci"),
    ]
    assert [(c["requests"][1], c["matchAttribute"]) for c in made["constraints"]] == [
        ("link/direct", f"{DRIVER}/node"),
        ("link/vhci", f"{DRIVER}/speedClass"),
    ]


def test_in_the_layout_of_a_port_each_the_direct_link_is_tied_by_id() -> None:
    made = spec(Reach.CLUSTER, id="some-id")
    assert made["constraints"][0]["matchAttribute"] == f"{DRIVER}/id"


def test_seen_by_its_own_node_only_it_is_this_device_or_a_port_and_its_name() -> None:
    made = spec(Reach.NODE)
    (request,) = made["requests"]
    local, remote = request["firstAvailable"]
    assert (local["name"], local["tolerations"]) == ("local", [FENCE])
    assert remote == {
        "name": "remote",
        "deviceClassName": CONTRACT.device_class("vhci"),
        "selectors": [
            {"cel": {"expression": f'device.attributes["{DRIVER}"].speedClass == "super"'}}
        ],
    }
    (entry,) = made["config"]
    read = merge(DRIVER, [entry["opaque"]["parameters"]])  # the plugin's own reader
    assert (entry["requests"], read.target) == (["usb"], Target(STICK, device().node))


@pytest.mark.parametrize(
    ("reach", "attributes"), [(Reach.LOCAL, {}), (Reach.NODE, {"speedClass": ""})]
)
def test_what_cannot_leave_its_node_is_asked_for_there_alone(
    reach: Reach, attributes: dict[str, Any]
) -> None:
    made = spec(reach, **attributes)
    (request,) = made["requests"]
    assert request["exactly"]["deviceClassName"] == CONTRACT.device_class("devices")
    assert "config" not in made


def test_r52_a_claim_is_current_whatever_fields_the_server_dropped() -> None:
    wanted = templates.claim_spec(device(), "lab", CONTRACT)
    stored = templates.claim("x", wanted, OWNER, CONTRACT)
    for request in stored["spec"]["devices"]["requests"]:
        request.get("exactly", {}).pop("tolerations", None)
    again = templates.claim_spec(device(), "lab", CONTRACT)
    assert templates.is_current(stored, again, "u", CONTRACT)
    assert not templates.is_current(stored, again, "another owner", CONTRACT)
    moved = templates.claim_spec(device("b"), "lab", CONTRACT)
    assert not templates.is_current(stored, moved, "u", CONTRACT)


def test_only_what_carries_our_hash_is_ours() -> None:
    wanted = templates.claim_spec(device(), "lab", CONTRACT)
    assert templates.is_ours(templates.template("x", wanted, OWNER, CONTRACT), CONTRACT)
    assert not templates.is_ours({"metadata": {"name": "x"}}, CONTRACT)
