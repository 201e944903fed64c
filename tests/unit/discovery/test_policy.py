# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from tests.unit.discovery.make import device
from usbdra.discovery.policy import CONSOLE_KEYBOARD, Policy, is_candidate, make_offer
from usbdra.errors import ConfigError
from usbdra.types import DeviceName, Offer, Speed, UsbDevice, UsbInterface

NAME = DeviceName("usb-0781-5581-4c5300")


def judge(device: UsbDevice, holder: str | None = None, **config: Any) -> Offer:
    return make_offer(Policy.from_mapping(config), device, NAME, holder=holder)


def verdict(offer: Offer) -> tuple[bool, bool]:
    return offer.usable, offer.exportable


def test_a_plain_stick_is_exportable_without_a_reason() -> None:
    assert judge(device()) == Offer(NAME, device(), usable=True, exportable=True, reason="")


@pytest.mark.parametrize(
    ("text", "code", "exportable"),
    [
        ("1.5", 1, False),
        ("12", 2, False),
        ("480", 3, True),
        ("5000", 5, True),
        ("10000", 6, True),
        ("20000", 6, True),
        ("unknown", 0, False),
        ("", 0, False),
    ],
)
def test_r06_speed_codes_and_the_speed_rule(text: str, code: int, exportable: bool) -> None:
    speed = Speed.from_sysfs(text)
    offer = judge(device(speed=speed))
    assert speed.code == code
    assert verdict(offer) == (True, exportable)
    assert bool(offer.reason) is not exportable


def test_forward_low_speed_lets_slow_devices_out_and_never_unknown_ones() -> None:
    assert judge(device(speed=Speed.LOW), forwardLowSpeed=True).exportable
    assert judge(device(speed=Speed.FULL), forwardLowSpeed=True).exportable
    offer = judge(device(speed=Speed.UNKNOWN), forwardLowSpeed=True)
    assert offer.reason == "speed unknown: no hub can be chosen on another node"


def test_r16_hubs_and_imported_devices_are_no_candidates() -> None:
    assert is_candidate(device())
    assert not is_candidate(device(class_code=9))
    assert not is_candidate(device(imported=True))


def test_r13_what_the_host_uses_is_not_offered() -> None:
    offer = judge(device(), holder="mounted at / (sda2)")
    assert verdict(offer) == (False, False)
    assert offer.reason == "in use by this host: mounted at / (sda2)"


def test_r13_no_rule_frees_a_mounted_disk() -> None:
    rules = [{"action": "allow", "device": "0781:5581"}]
    assert not judge(device(), holder="mounted at /", rules=rules).usable


@pytest.mark.parametrize(
    ("rule", "usable"),
    [
        ({"action": "allow", "device": "0781:5581"}, True),
        ({"action": "allow", "serial": "4C*"}, True),
        ({"action": "allow", "busID": "1-4"}, True),
        ({"action": "allow", "class": "08"}, False),
        ({"action": "allow", "device": "0781:*"}, False),
        ({"action": "deny", "device": "0781:5581"}, False),
    ],
)
def test_a_keyboard_of_the_console_needs_a_rule_that_names_it(
    rule: dict[str, str], usable: bool
) -> None:
    assert judge(device(), holder=CONSOLE_KEYBOARD, rules=[rule]).usable is usable


def test_r21_unauthorized_and_unconfigured() -> None:
    blocked = judge(device(authorized=False, configuration=None, interfaces=()))
    assert verdict(blocked) == (False, False)
    assert blocked.reason == "not authorized on this host (sysfs authorized is 0)"
    for value in (None, 0):
        offer = judge(device(configuration=value, interfaces=()))
        assert verdict(offer) == (False, False)
        assert offer.reason == "not configured: the device has no active configuration"


def test_r18_an_exported_device_is_unconfigured_and_still_offered() -> None:
    assert judge(device(configuration=None, driver="usbip-host")).exportable


def test_r32_new_face_at_a_port_in_use_is_not_free() -> None:
    old = DeviceName("usb-1a6e-089a-port-4-0a1b2c3d")
    offer = make_offer(Policy(), device(), NAME, held=old)
    assert verdict(offer) == (False, False)
    assert offer.reason == f"identity changed: this port is in use as {old}"
    assert make_offer(Policy(), device(), NAME, held=NAME).exportable


COMPOSITE = (UsbInterface(0, 3, 1, 1, "usbhid"), UsbInterface(1, 0x0B, 0, 0, None))


@pytest.mark.parametrize(
    "match",
    [
        {"class": "0b"},
        {"class": "smart-card"},
        {"class": "HID"},
        {"class": "00"},
        {"device": "0781:5581"},
        {"device": "*:5581"},
        {"device": "0781:*", "serial": "4C53??"},
        {"port": "pci-0000:00:14.0-usb2-0:*"},
        {"busID": "1-[2-5]"},
        {},
    ],
)
def test_rules_match(match: dict[str, str]) -> None:
    offer = judge(device(interfaces=COMPOSITE), rules=[{"action": "deny", **match}])
    assert verdict(offer) == (False, False)
    assert offer.reason == "denied by policy.rules[0]"


@pytest.mark.parametrize(
    "match",
    [
        {"class": "08"},
        {"device": "0781:0001"},
        {"device": "0781:5581", "serial": "X*"},
        {"port": "pci-0000:00:15.0-*"},
        {"busID": "2-4"},
    ],
)
def test_rules_that_do_not_match(match: dict[str, str]) -> None:
    assert judge(device(interfaces=COMPOSITE), rules=[{"action": "deny", **match}]).exportable


def test_the_first_matching_rule_decides_and_gives_its_reason() -> None:
    rules = [
        {"action": "deny", "serial": "NO*"},
        {"action": "allow", "device": "0781:5581"},
        {"action": "deny", "reason": "never reached"},
    ]
    assert judge(device(), rules=rules, default="deny").exportable
    rules.insert(0, {"action": "deny", "reason": "kept for the lab"})
    assert judge(device(), rules=rules).reason == "kept for the lab"


def test_default_deny() -> None:
    assert judge(device(), default="deny").reason == "denied by policy.default"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"forwardLowSped": True}, "unknown field 'forwardLowSped'; did you mean forwardLowSpeed?"),
        ({"zz": 1}, "unknown field 'zz'; known: forwardLowSpeed, default, rules"),
        ({"forwardLowSpeed": "yes"}, "policy.forwardLowSpeed must be true or false"),
        ({"rules": {}}, "policy.rules must be a list"),
        ({"rules": "x"}, "policy.rules must be a list"),
        ({"rules": ["x"]}, r"policy.rules\[0\] must be a mapping"),
        ({"rules": [{"class": "hid"}]}, r"policy.rules\[0\].action is missing"),
        ({"rules": [{"action": "drop"}]}, r"policy.rules\[0\].action must be allow or deny"),
        ({"rules": [{"action": "deny", "busid": "1-4"}]}, "unknown field 'busid'.*busID"),
        ({"rules": [{"action": "deny", "class": 8}]}, r"rules\[0\].class must be two hex"),
        ({"rules": [{"action": "deny", "class": "8"}]}, r"rules\[0\].class must be two hex"),
        ({"rules": [{"action": "deny", "device": "781:5581"}]}, "must be vendor:product"),
        ({"rules": [{"action": "deny", "serial": 12}]}, r"rules\[0\].serial must be a text"),
        ({"default": "maybe"}, "policy.default must be allow or deny, not 'maybe'"),
        ({"default": ["allow"]}, "policy.default must be allow or deny"),
    ],
)
def test_bad_configuration_names_the_field(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Policy.from_mapping(config)


def test_empty_configuration_is_the_default_policy() -> None:
    assert Policy.from_mapping({}) == Policy.from_mapping({"rules": None}) == Policy()


@pytest.mark.parametrize("place", ["default", "rules", "action", "serial"])
def test_a_nest_of_aliases_is_not_written_out(place: str) -> None:
    nest: object = "x"
    for _ in range(40):
        nest = [nest, nest]
    mappings: dict[str, dict[str, object]] = {
        "default": {"default": nest},
        "rules": {"rules": [nest]},
        "action": {"rules": [{"action": nest}]},
        "serial": {"rules": [{"action": "deny", "serial": nest}]},
    }
    with pytest.raises(ConfigError) as caught:
        Policy.from_mapping(mappings[place])
    assert place in str(caught.value)
    assert len(str(caught.value)) < 200
