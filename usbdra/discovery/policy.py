# SPDX-License-Identifier: Apache-2.0
"""What may be offered, and to whom: the operator's rules, the speed rule, the host's own use.

Owns the judgement of one device and the texts that explain it. Pure: facts come in as values.
Configuration (all optional; the first rule whose every field matches decides):

    policy:
      forwardLowSpeed: false      # let 1.5 and 12 Mbit/s devices be used from other nodes
      default: allow              # what happens when no rule matches
      rules:
        - {action: deny, class: hid, reason: "no input devices"}
        - {action: allow, device: "0781:*", serial: "4C53*"}
        - {action: deny, port: "pci-0000:00:14.0-usb2-0:1.*"}
        - {action: deny, busID: "1-1.*"}

What the host uses is never offered, with one exception: barcode scanners and security keys look
like keyboards, and a host with a screen takes them for its console's. An allow rule that names
the device (by `device` without `*`, `serial`, `port` or `busID`) gives such a one free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from usbdra.errors import ConfigError, shown
from usbdra.types import DeviceName, Offer, Speed, SpeedClass, UsbDevice

EXPORT_DRIVER = "usbip-host"
CONSOLE_KEYBOARD = "console keyboard"
"""The one use by the host that an operator's rule can overrule."""

CLASS_NAMES: Mapping[str, int] = {
    "audio": 0x01,
    "communications": 0x02,
    "hid": 0x03,
    "physical": 0x05,
    "image": 0x06,
    "printer": 0x07,
    "storage": 0x08,
    "hub": 0x09,
    "cdc-data": 0x0A,
    "smart-card": 0x0B,
    "video": 0x0E,
    "wireless": 0xE0,
    "misc": 0xEF,
    "vendor": 0xFF,
}
"""USB class codes by the names a rule may use; two hex digits do as well (usb.org defined)."""

_HEX2 = re.compile(r"[0-9a-fA-F]{2}")
_DEVICE = re.compile(r"([0-9a-fA-F]{4}|\*):([0-9a-fA-F]{4}|\*)")
_POLICY_FIELDS = ("forwardLowSpeed", "default", "rules")
_RULE_FIELDS = ("action", "reason", "class", "device", "serial", "port", "busID")


class Action(Enum):
    """What a rule does."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. None in a field matches anything; globs are case sensitive.

    `class_code` matches the device's own class or that of any of its interfaces.
    """

    action: Action
    reason: str = ""
    class_code: int | None = None
    vendor_id: str | None = None
    product_id: str | None = None
    serial: str | None = None
    port: str | None = None
    busid: str | None = None

    @property
    def names_device(self) -> bool:
        """True when the rule is about certain devices, not a whole class or vendor."""
        return None not in (self.vendor_id, self.product_id) or any(
            field is not None for field in (self.serial, self.port, self.busid)
        )

    def matches(self, device: UsbDevice) -> bool:
        """True when every field that is set fits the device."""
        return (
            self.class_code in (None, device.class_code, *_interface_classes(device))
            and self.vendor_id in (None, device.vendor_id)
            and self.product_id in (None, device.product_id)
            and _fits(self.serial, device.serial or "")
            and _fits(self.port, device.port_path)
            and _fits(self.busid, device.busid)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's whole policy; the default one allows everything that is safe."""

    rules: tuple[Rule, ...] = ()
    default: Action = Action.ALLOW
    forward_low_speed: bool = False

    @classmethod
    def from_mapping(cls, config: Mapping[str, object]) -> Policy:
        """Build from parsed configuration. Raises ConfigError naming the field."""
        _only_known(config, _POLICY_FIELDS, "policy")
        forward = config.get("forwardLowSpeed", False)
        if not isinstance(forward, bool):
            raise ConfigError(f"policy.forwardLowSpeed must be true or false, not {shown(forward)}")
        rules = config.get("rules")
        rules = [] if rules is None else rules
        if not isinstance(rules, list):
            raise ConfigError("policy.rules must be a list")
        return cls(
            rules=tuple(_rule(item, f"policy.rules[{i}]") for i, item in enumerate(rules)),
            default=_action(config.get("default", "allow"), "policy.default"),
            forward_low_speed=forward,
        )


def make_offer(
    policy: Policy,
    device: UsbDevice,
    name: DeviceName,
    *,
    holder: str | None = None,
    held: DeviceName | None = None,
    stay: str = "",
) -> Offer:
    """Judge a candidate.

    `holder` says what of the host uses the device, as `hostuse` found it. `held` is the name
    under which this port is in use; a device of another name there has changed its face (some
    do, on first use or when flashed) and is not free while that use lasts. `stay` says why nothing
    may leave this node.
    """
    if held is not None and held != name:
        refusal = identity_changed(held)
    else:
        refusal = _refusal(policy, device, holder)
    if refusal:
        return Offer(name, device, usable=False, exportable=False, reason=refusal)
    local_only = stay or _local_only(policy, device.speed)
    return Offer(name, device, usable=True, exportable=not local_only, reason=local_only)


def identity_changed(held: DeviceName) -> str:
    """Why a device is refused that showed up where the device of this name is in use."""
    return f"identity changed: this port is in use as {held}"


def is_candidate(device: UsbDevice) -> bool:
    """False for hubs, and for devices imported over USB/IP: their own node offers those."""
    return not device.is_hub and not device.imported


def _refusal(policy: Policy, device: UsbDevice, holder: str | None) -> str:
    """Why the device may not be offered at all, or an empty text."""
    if not device.authorized:
        return "not authorized on this host (sysfs authorized is 0)"
    # An exported device has no configuration till its importer sets one.
    if not device.configuration and device.driver != EXPORT_DRIVER:
        return "not configured: the device has no active configuration"
    rule = next((r for r in policy.rules if r.matches(device)), None)
    if holder is not None and not (holder == CONSOLE_KEYBOARD and _frees(rule)):
        return f"in use by this host: {holder}"
    if rule is None:
        return "" if policy.default is Action.ALLOW else "denied by policy.default"
    if rule.action is Action.ALLOW:
        return ""
    return rule.reason or f"denied by policy.rules[{policy.rules.index(rule)}]"


def _frees(rule: Rule | None) -> bool:
    return rule is not None and rule.action is Action.ALLOW and rule.names_device


def _local_only(policy: Policy, speed: Speed) -> str:
    """Why the device stays on its node, or an empty text."""
    if speed is Speed.UNKNOWN:
        return "speed unknown: no hub can be chosen on another node"
    if speed.speed_class in (SpeedClass.LOW, SpeedClass.FULL) and not policy.forward_low_speed:
        return f"{speed.mbit_text} Mbit/s devices stay on their node (forwardLowSpeed is off)"
    return ""


def _interface_classes(device: UsbDevice) -> tuple[int, ...]:
    return tuple(i.class_code for i in device.interfaces)


def _fits(pattern: str | None, text: str) -> bool:
    return pattern is None or fnmatchcase(text, pattern)


def _rule(item: object, where: str) -> Rule:
    if not isinstance(item, Mapping):
        raise ConfigError(f"{where} must be a mapping, not {shown(item)}")
    _only_known(item, _RULE_FIELDS, where)
    if "action" not in item:
        raise ConfigError(f"{where}.action is missing: allow or deny")
    vendor, product = _vendor_product(_text(item, "device", where), where)
    return Rule(
        action=_action(item["action"], f"{where}.action"),
        reason=_text(item, "reason", where) or "",
        class_code=_class_code(item.get("class"), where),
        vendor_id=vendor,
        product_id=product,
        serial=_text(item, "serial", where),
        port=_text(item, "port", where),
        busid=_text(item, "busID", where),
    )


def _only_known(item: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for field in item:
        if field not in known:
            from difflib import get_close_matches

            close = get_close_matches(str(field), known, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
            raise ConfigError(f"{where} has an unknown field {shown(field)}{hint}")


def _action(value: object, where: str) -> Action:
    for action in Action:
        if value == action.value:
            return action
    raise ConfigError(f"{where} must be allow or deny, not {shown(value)}")


def _text(item: Mapping[str, object], field: str, where: str) -> str | None:
    value = item.get(field)
    if value is None or isinstance(value, str):
        return value
    raise ConfigError(f"{where}.{field} must be a text in quotes, not {shown(value)}")


def _class_code(value: object, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value.lower() in CLASS_NAMES:
            return CLASS_NAMES[value.lower()]
        if _HEX2.fullmatch(value):
            return int(value, 16)
    raise ConfigError(
        f"{where}.class must be two hex digits in quotes or one of "
        f"{', '.join(CLASS_NAMES)}, not {shown(value)}"
    )


def _vendor_product(value: str | None, where: str) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    match = _DEVICE.fullmatch(value)
    if match is None:
        raise ConfigError(f"{where}.device must be vendor:product in hex or *, not {shown(value)}")
    vendor, product = (None if part == "*" else part.lower() for part in match.groups())
    return vendor, product
