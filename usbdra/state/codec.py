# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses to JSON values and back, strictly.

Owns the shape check of records that live longer than a process: an unknown, missing or
mistyped field is an error that names its path. Must not do I/O and knows no particular record.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(value: Any) -> Any:
    """The JSON form of a record: dataclasses as objects, enums by value, tuples as arrays."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    kind: Any = type(value)
    return {name: encode(getattr(value, name)) for name in _names(kind)}


def decode(kind: type[T], data: Any, where: str) -> T:
    """Build a `kind` from its JSON form.

    where: what the data is, for the error text. Raises ValueError naming the path of the first
    field that is unknown, missing or of another type.
    """
    result: T = _decode(kind, data, where)
    return result


def _decode(kind: Any, data: Any, where: str) -> Any:
    if isinstance(kind, NewType):
        return _decode(kind.__supertype__, data, where)
    if is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _decode_enum(kind, data, where)
    if get_origin(kind) is not None:
        return _decode_generic(get_origin(kind), get_args(kind), data, where)
    # bool is an int in Python, never in JSON
    if kind is not Any and (not isinstance(data, kind) or (kind is int and isinstance(data, bool))):
        raise ValueError(f"{where} is {_shown(data)}, not {_noun(kind)}")
    return data


def _decode_generic(origin: Any, args: tuple[Any, ...], data: Any, where: str) -> Any:
    if origin in (Union, types.UnionType):
        inner = next(option for option in args if option is not type(None))
        return None if data is None else _decode(inner, data, where)
    if origin is tuple:
        return _decode_tuple(args[0], data, where)
    return _decode_mapping(args[1], data, where)


def _decode_tuple(item: Any, data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise ValueError(f"{where} is {_shown(data)}, not a list")
    return tuple(_decode(item, value, f"{where}[{i}]") for i, value in enumerate(data))


def _decode_mapping(item: Any, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {_shown(data)}, not an object")
    return {key: _decode(item, value, f"{where}.{key}") for key, value in data.items()}


def _decode_enum(kind: type[Enum], data: Any, where: str) -> Enum:
    for member in kind:
        if member.value == data:
            return member
    known = ", ".join(str(member.value) for member in kind)
    raise ValueError(f"{where} is {_shown(data)}, not one of {known}")


def _decode_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {_shown(data)}, not an object")
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise ValueError(f"{where} has an unknown field {unknown[0]!r}")
    values = {}
    for spec in fields(kind):
        if spec.name in data:
            values[spec.name] = _decode(hints[spec.name], data[spec.name], f"{where}.{spec.name}")
        elif spec.default is MISSING and spec.default_factory is MISSING:
            raise ValueError(f"{where} has no field {spec.name!r}")
    return kind(**values)


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Field names of a dataclass. Raises TypeError for any other type."""
    return tuple(spec.name for spec in fields(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _noun(kind: Any) -> str:
    return _NOUNS.get(kind) or str(kind.__name__)


_NOUNS: Mapping[Any, str] = {str: "a text", int: "a whole number", bool: "true or false"}
