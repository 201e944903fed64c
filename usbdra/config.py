# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009  _setting() is dataclasses.field() with our metadata
"""All settings of a process as one frozen value, from flags, environment and a YAML file.

Owns names, defaults and checks of settings. A flag wins over the environment, the environment
over the file, the file over the default. Must not look at the system beyond reading the file;
what a value refers to (a directory, a device) is checked where it is used.

Values arrive as text whatever their source: the file is read without YAML's guesses, so that
`product: 0316` stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from usbdra.errors import ConfigError, shown

DEFAULT_FILE = Path("/etc/usbdra/config.yaml")
ENV_PREFIX = "USBDRA_"
ENV_FILE = "USBDRA_CONFIG"
MAX_FILE_BYTES = 1 << 20

Parser = Callable[[object], object]


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError("a non-empty text is wanted")
    return raw


def _path(raw: object) -> Path:
    text = str(raw) if isinstance(raw, Path) else _text(raw)
    if "\0" in text:
        raise ValueError("a path has no NUL character")
    return Path(text)


def _flag(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if not isinstance(raw, str) or raw.lower() not in known:
        raise ValueError(f"{shown(raw)} is neither true nor false")
    return known[raw.lower()]


def _number(low: int, high: int) -> Parser:
    def parse(raw: object) -> int:
        text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
        if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,9}", text):
            raise ValueError(f"{shown(raw)} is not a whole number")
        if not low <= int(text) <= high:
            raise ValueError(f"{text} is not between {low} and {high}")
        return int(text)

    return parse


def _choice(*allowed: str) -> Parser:
    def parse(raw: object) -> str:
        if raw not in allowed:
            raise ValueError(f"{shown(raw)} is none of {', '.join(allowed)}")
        return str(raw)

    return parse


def _texts(raw: object) -> tuple[str, ...]:
    """A list, or one text with commas."""
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple):
        raise ValueError("a list is wanted")
    return tuple(_text(item.strip() if isinstance(item, str) else item) for item in items)


def _networks(raw: object) -> tuple[str, ...]:
    import ipaddress

    return tuple(str(ipaddress.ip_network(text)) for text in _texts(raw))


def _policy(raw: object) -> Mapping[str, object]:
    """The device policy; what its rules may say is checked by discovery/policy.py."""
    if not isinstance(raw, Mapping):
        raise ValueError("a mapping is wanted")
    if "forwardLowSpeed" in raw:
        raise ValueError("forwardLowSpeed is a key of its own, beside policy")
    return MappingProxyType(dict(raw))


def _setting(default: object, parse: Parser, key: str = "") -> Any:
    return field(default=default, metadata={"parse": parse, "key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting; the YAML key is the camelCase form, the variable `USBDRA_` and upper case."""

    root: Path = _setting(Path("/"), _path)
    """Where `sys`, `dev` and `proc` are, for everything that only reads."""
    node: str | None = _setting(None, _text)
    """This machine's name; None stands for its host name."""
    group: str = _setting("virtualization.deckhouse.io", _text)
    """The API group of objects, labels and the driver's name."""
    visibility: str = _setting("Cluster", _choice("Cluster", "Node"))
    layout: str = _setting("hub", _choice("hub", "ports"))
    max_ports: int | None = _setting(None, _number(0, 4096))
    """At most so many vhci ports of each hub are used; None: all there are."""
    forward_low_speed: bool = _setting(False, _flag)
    """Let devices of 1.5 and 12 Mbit/s cross nodes."""
    policy: Mapping[str, object] | None = _setting(None, _policy)
    """What may be offered: `default` and `rules` as in discovery/policy.py."""
    listen: tuple[str, ...] = _setting(("0.0.0.0", "::"), _texts)  # noqa: S104 a server's default
    port: int = _setting(3241, _number(0, 65535))
    """TCP port of encrypted links; 0 lets the system choose."""
    plain_port: int = _setting(3240, _number(0, 65535))
    """TCP port of stock USB/IP, used only in plain mode."""
    allowed_nodes: tuple[str, ...] = _setting((), _texts)
    """Names of nodes that may use our devices; empty: every node our CA has signed."""
    allowed_cidrs: tuple[str, ...] = _setting((), _networks, "allowedCIDRs")
    """Networks from which anyone may connect at all; empty: all."""
    encryption: str = _setting("Required", _choice("Required", "Allowed", "Off"))
    """Of authenticated links: nothing else, where both kernels can, or never."""
    pki_dir: Path = _setting(Path("/etc/usbdra/pki"), _path)
    run_dir: Path = _setting(Path("/run/usbdra"), _path)
    log_level: str = _setting("info", _choice("debug", "info", "warning", "error"))
    log_format: str = _setting("text", _choice("text", "json", "auto"))


def load(
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Put the sources together and check every value once.

    flags: by field name, None for flags not given. env: the process environment. file: a file
    that must exist; None looks at USBDRA_CONFIG, then at the default file if it is there.
    Raises ConfigError that names source, key and value, and the nearest key for an unknown one.
    """
    values: dict[str, object] = {}
    env = env or {}
    for source in (_from_file(_file(env, file)), _from_env(env), _from_flags(flags or {})):
        values.update(source)
    return Settings(**values)  # type: ignore[arg-type]  # each value went through its parser


def settings_keys() -> dict[str, str]:
    """YAML key to field name, in declaration order."""
    return {f.metadata["key"] or _camel(f.name): f.name for f in fields(Settings)}


def closest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or an empty text."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _file(env: Mapping[str, str], file: Path | None) -> Path | None:
    if file is not None:
        return file
    if env.get(ENV_FILE):
        return Path(env[ENV_FILE])
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _from_file(path: Path | None) -> Iterator[tuple[str, object]]:
    if path is None:
        return
    keys = settings_keys()
    for key, raw in _read(path).items():
        if key not in keys:
            raise ConfigError(f"{path}: unknown key {shown(key)}{closest(str(key), keys)}")
        yield keys[key], _parsed(keys[key], raw, f"{path}: {key}")


def _read(path: Path) -> dict[str, object]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        content = yaml.load(data, Loader=yaml.BaseLoader)  # noqa: S506 builds texts only
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        # ValueError, OverflowError: a scanner that meets "\\U0015ffff" or a number of 5000 digits.
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        problem = getattr(error, "problem", None) or "cannot be read"
        raise ConfigError(f"{path}: not YAML{where}: {problem}") from error
    if content is None or content == "":
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mapping of settings is wanted")
    return content


def _from_env(env: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """Values of known variables. A variable of another name is an error only when it looks
    like a slip of the pen: Kubernetes adds variables of its own for services."""
    names = {ENV_PREFIX + f.name.upper(): f.name for f in fields(Settings)}
    for name, raw in env.items():
        if not name.startswith(ENV_PREFIX) or name == ENV_FILE:
            continue
        if name in names:
            yield names[name], _parsed(names[name], raw, name)
        elif hint := _near_slip(name, list(names)):
            raise ConfigError(f"unknown variable {name}; did you mean {hint}?")


def _near_slip(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
    return near[0] if near else ""


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    keys = {name: key for key, name in settings_keys().items()}
    for name, raw in flags.items():
        if raw is not None and raw != ():  # named by the setting: commands spell options their way
            yield name, _parsed(name, raw, f"option for {keys[name]}")


def _parsed(name: str, raw: object, where: str) -> object:
    parse: Parser = Settings.__dataclass_fields__[name].metadata["parse"]
    try:
        return parse(raw)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
