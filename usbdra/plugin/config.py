# SPDX-License-Identifier: Apache-2.0
"""`USBDeviceConfig`, the opaque parameters of a claim or a DeviceClass for this driver.

Owns their shape, defaults and checks. Pure. A field that is not known or not possible is an
error that names it; nothing ever falls back to owner 0 or to a wider mode.

    apiVersion: usb.virtualization.deckhouse.io/v1alpha1
    kind: USBDeviceConfig
    owner: {uid: 107, gid: 107, mode: "0660"}
    childNodes: [tty, hidraw, video, sound, block]
    envPrefix: STICK
    driver: none
    onReconnect: relink
    device: {name: usb-0951-1666-abc, node: node-a}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from usbdra.errors import ConfigError
from usbdra.state.codec import decode, encode
from usbdra.types import DeviceName, NodeName

VERSION = "v1alpha1"
KIND = "USBDeviceConfig"

SUBSYSTEMS: Mapping[str, str] = {
    "tty": "tty",
    "hidraw": "hidraw",
    "video": "video4linux",
    "sound": "sound",
    "printer": "usbmisc",
    "input": "input",
    "block": "block",
}
"""What a claim may ask for by the name of its sysfs subsystem (types.ChildNode.kind)."""

DEFAULT_CHILD_NODES = ("tty", "hidraw", "video", "sound")
DEFAULT_MODE = 0o660
MAX_ID = 2**32 - 2
"""Highest uid and gid; 2**32 - 1 means "no change" to chown (man 2 chown)."""

_MODE = re.compile(r"0?[0-7]{3}")
_PREFIX = re.compile(r"[A-Z][A-Z0-9_]{0,31}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PLACE = re.compile(rf"(outside/)?{_NAME.pattern}")
_FIELDS = ("owner", "childNodes", "envPrefix", "driver", "device", "onReconnect")
RELINK, RESTART, EVICT = "relink", "restartContainer", "evict"


@dataclass(frozen=True, slots=True)
class Target:
    """The device a node-visible claim is for, named where the allocation cannot name it."""

    name: DeviceName
    node: NodeName


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """How a device is given to its container.

    uid, gid: None leaves the owner to the container's own user (CDI: container-edits.go gives
    device nodes without an owner to the process's user). mode: permission bits, never more
    than 0o666. child_nodes: names of SUBSYSTEMS. env_prefix: empty for the default made from
    the request's name. host_drivers: False keeps interface drivers off the device. on_reconnect:
    what becomes of a running container when a device that it lost is back: RELINK or RESTART;
    or EVICT: its pod is evicted at the loss (controller/evictions.py).
    """

    uid: int | None = None
    gid: int | None = None
    mode: int = DEFAULT_MODE
    child_nodes: tuple[str, ...] = DEFAULT_CHILD_NODES
    env_prefix: str = ""
    host_drivers: bool = True
    target: Target | None = None
    on_reconnect: str = RELINK

    @property
    def kinds(self) -> frozenset[str]:
        """The sysfs subsystems whose nodes the container gets."""
        return frozenset(SUBSYSTEMS[name] for name in self.child_nodes)


def to_record(config: DeviceConfig) -> dict[str, Any]:
    """The settings as the checkpoint keeps them."""
    record: dict[str, Any] = encode(config)
    return record


def from_record(record: Mapping[str, Any]) -> DeviceConfig:
    """Settings back from the checkpoint. Raises StateError."""
    return decode(DeviceConfig, dict(record), "config")


def merge(driver: str, parameters: Iterable[Any]) -> DeviceConfig:
    """The settings of one device from all parameters that apply to it, later ones winning.

    driver: this driver's name; `apiVersion` is `<driver>/v1alpha1`. A field left out of one
    object keeps what an earlier one said. Raises ConfigError naming field and value.
    """
    config = DeviceConfig()
    for item in parameters:
        config = _apply(config, _checked(driver, item))
    return config


def _checked(driver: str, item: Any) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise ConfigError(f"{KIND} is not an object")
    if item.get("kind") != KIND:
        raise ConfigError(f"parameters have kind {item.get('kind')!r}; this driver knows {KIND}")
    known = f"{driver}/{VERSION}"
    if item.get("apiVersion") != known:
        raise ConfigError(
            f"{KIND} has apiVersion {item.get('apiVersion')!r}; this driver knows {known}"
        )
    fields = {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}
    _only(fields, _FIELDS, KIND)
    return fields


def _apply(config: DeviceConfig, fields: Mapping[str, Any]) -> DeviceConfig:
    if "owner" in fields:
        config = _apply_owner(config, fields["owner"])
    if "childNodes" in fields:
        config = replace(config, child_nodes=_child_nodes(fields["childNodes"]))
    if "envPrefix" in fields:
        config = replace(config, env_prefix=_matching(fields, "envPrefix", _PREFIX, "A-Z, 0-9, _"))
    if "driver" in fields:
        if fields["driver"] not in ("none", "host"):
            raise ConfigError(f"{KIND}.driver is {fields['driver']!r}; use `none` or `host`")
        config = replace(config, host_drivers=fields["driver"] == "host")
    if "onReconnect" in fields:
        if fields["onReconnect"] not in (RELINK, RESTART, EVICT):
            raise ConfigError(
                f"{KIND}.onReconnect is {fields['onReconnect']!r}; use `{RELINK}`, `{RESTART}` "
                f"or `{EVICT}`"
            )
        config = replace(config, on_reconnect=fields["onReconnect"])
    if "device" in fields:
        config = replace(config, target=_target(fields["device"]))
    return config


def _apply_owner(config: DeviceConfig, owner: Any) -> DeviceConfig:
    _only(owner, ("uid", "gid", "mode"), f"{KIND}.owner")
    if "uid" in owner:
        config = replace(config, uid=_id(owner["uid"], "uid"))
    if "gid" in owner:
        config = replace(config, gid=_id(owner["gid"], "gid"))
    if "mode" in owner:
        config = replace(config, mode=_mode(owner["mode"]))
    return config


def _id(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ID:
        raise ConfigError(
            f"{KIND}.owner.{name} is {value!r}; it must be a whole number from 0 to {MAX_ID}"
        )
    return value


def _mode(value: Any) -> int:
    bits = int(value, 8) if isinstance(value, str) and _MODE.fullmatch(value) else -1
    if bits < 0 or bits & ~0o666 or not bits & 0o600:
        raise ConfigError(
            f"{KIND}.owner.mode is {value!r}; it must be a text of octal digits that lets the "
            'owner read or write and nobody execute, such as "0660"'
        )
    return bits


def _child_nodes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{KIND}.childNodes is {value!r}; it must be a list")
    for name in value:
        if not isinstance(name, str) or name not in SUBSYSTEMS:
            known = ", ".join(SUBSYSTEMS)
            raise ConfigError(f"{KIND}.childNodes has {name!r}; known are {known}")
    return tuple(dict.fromkeys(value))


def _target(value: Any) -> Target:
    where = f"{KIND}.device"
    _only(value, ("name", "node"), where)
    name = _matching(value, "name", _NAME, "a DNS name", where)
    return Target(DeviceName(name), NodeName(_matching(value, "node", _PLACE, "a DNS name", where)))


def _matching(
    fields: Mapping[str, Any], name: str, pattern: re.Pattern[str], wanted: str, where: str = KIND
) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ConfigError(f"{where}.{name} is {value!r}; it must be {wanted}")
    return value


def _only(fields: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(fields, dict):
        raise ConfigError(f"{where} is {fields!r}, not an object")
    for name in fields:
        if name not in known:
            raise ConfigError(f"{where} has an unknown field {name!r}")
