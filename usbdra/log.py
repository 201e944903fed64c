# SPDX-License-Identifier: Apache-2.0
"""Logging of the process: set-up, fields that travel with a task, warnings said once.

Owns the form of a log line. Modules log through `logging.getLogger(__name__)` and give facts
as `extra={"device": ...}`; every such fact becomes a field of the line. Must not decide what is
worth logging.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TextIO

_NOTHING: Mapping[str, object] = MappingProxyType({})
_context: ContextVar[Mapping[str, object]] = ContextVar("usbdra_log_context", default=_NOTHING)
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def setup(level: str = "info", form: str = "text", stream: TextIO | None = None) -> None:
    """Send our log lines to the stream (default: standard error); replaces an earlier set-up.

    level: debug, info, warning, error. form: `text` for people, `json` for one object a line,
    `auto` for text on a terminal and JSON elsewhere.
    """
    stream = stream or sys.stderr
    if form == "auto":
        form = "text" if stream.isatty() else "json"
    handler = _Handler(stream, level)
    handler.addFilter(OnceFilter())
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger = logging.getLogger("usbdra")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def toggle_debug() -> None:
    """Debug lines from now on, or the level of the set-up again; a line says which."""
    logger = logging.getLogger("usbdra")
    level = next((h.configured for h in logger.handlers if isinstance(h, _Handler)), "info")
    level = level if logger.level == logging.DEBUG else "debug"
    logger.setLevel(level.upper())
    always("log level changed", {"to": level})


def always(message: str, fields: Mapping[str, object]) -> None:
    """A line whatever the level: somebody asked for it."""
    logger = logging.getLogger("usbdra")
    where = (logger.name, logging.INFO, "", 0, message, (), None)
    logger.handle(logger.makeRecord(*where, extra=fields))


@contextmanager
def context(**fields: object) -> Iterator[None]:
    """Add fields to every line logged inside, also by tasks started inside."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class _Handler(logging.StreamHandler[TextIO]):
    """Remembers the level of the set-up."""

    def __init__(self, stream: TextIO, configured: str) -> None:
        super().__init__(stream)
        self.configured = configured


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO exporter.server: peer refused peer=b reason=Refused`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; what could break the line or the terminal is escaped."""
        head = f"{_timestamp(record)} {record.levelname} {_short_name(record)}:"
        facts = (f"{key}={_plain(value)}" for key, value in _fields(record).items())
        line = " ".join([head, _escaped(record.getMessage()), *facts])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of ASCII JSON."""
        entry: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": _short_name(record),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class OnceFilter(logging.Filter):
    """Lets a warning pass the first time and drops its repeats.

    Records that carry `extra={"once": key}` count; all others pass. At most `limit` keys are
    remembered, the oldest is forgotten first, so a flood of different keys costs no memory.
    """

    def __init__(self, limit: int = 1024) -> None:
        super().__init__()
        self._limit = limit
        self._seen: OrderedDict[object, None] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be shown."""
        key = record.__dict__.get("once")
        if key is None:
            return True
        if key in self._seen:
            self._seen.move_to_end(key)
            return False
        self._seen[key] = None
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    own = {k: v for k, v in vars(record).items() if k not in _RECORD_FIELDS and k != "once"}
    return {**_context.get(), **own}


def _timestamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _short_name(record: logging.LogRecord) -> str:
    return record.name.removeprefix("usbdra.")


def _plain(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    text = _escaped(str(value))
    return f'"{text}"' if not text or any(c in text for c in ' ="') else text


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
