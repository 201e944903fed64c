# SPDX-License-Identifier: Apache-2.0
"""What a cluster's controller has a host outside do, and the answer: fields of INVENTORY, and back.

Owns the form of both, which older peers leave unread. Must not know what is done. Pure.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from usbdra.usbip.fields import clean_text, matching, object_of, text_of

MAX_ANSWER_BYTES = 1024

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_WORD = re.compile(r"[-0-9A-Za-z:.+,]{1,64}", re.ASCII)
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset that is asked for. word: see usbdra/resetword.py; it tells one from every other."""

    device: str
    word: str


@dataclass(frozen=True, slots=True)
class ResetAnswer:
    """What became of the reset of this word: CamelCase for machines, a text for people."""

    word: str
    reason: str
    text: str


def can_be_asked(asked: Reset) -> bool:
    """Whether a host would understand it: a word may be anybody's, and of any form."""
    return bool(_LABEL.fullmatch(asked.device) and _WORD.fullmatch(asked.word))


def reset_fields(asked: Reset) -> dict[str, Any]:
    """As JSON has it."""
    return asdict(asked)


def parse_reset(value: object) -> Reset | None:
    """None for none. Raises ProtocolError naming the field."""
    if value is None:
        return None
    fields = object_of(value, "reset")
    return Reset(matching(fields, "device", _LABEL), matching(fields, "word", _WORD))


def answer_fields(answer: ResetAnswer) -> dict[str, Any]:
    """As JSON has it."""
    return {**asdict(answer), "text": clean_text(answer.text, MAX_ANSWER_BYTES)}


def parse_answer(value: object) -> ResetAnswer | None:
    """None for none. Raises ProtocolError naming the field."""
    if value is None:
        return None
    fields = object_of(value, "reset")
    return ResetAnswer(
        matching(fields, "word", _WORD),
        matching(fields, "reason", _REASON),
        clean_text(text_of(fields, "text"), MAX_ANSWER_BYTES),
    )
