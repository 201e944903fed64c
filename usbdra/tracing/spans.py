# SPDX-License-Identifier: Apache-2.0
"""Spans of the trace that this task is part of, if it is part of one.

Owns which span is the current one. Who begins a trace, or goes on with a peer's, has a Tracer;
whatever is called below it, in the same task, in tasks begun there or on another loop
(`run_coroutine_threadsafe` takes the context along), just says `span("bind")`. Without a trace that
is one look at a context variable: OpenTelemetry is loaded by otel.py alone, where it is turned on.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import Enum
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from usbdra.errors import UsbdraError

P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = Callable[P, Coroutine[Any, Any, T]]

Value = str | int | bool
"""What an attribute may be. Names are those of docs/tracing.md, here without `usbdra.`."""


class Kind(Enum):
    """Which side of a call between processes a span is, as OpenTelemetry has it."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


class Span(Protocol):
    """One step of a trace."""

    @property
    def traceparent(self) -> str:
        """See traceparent.py: what another process goes on from."""
        ...

    def set(self, **attributes: Value) -> None:
        """Say more of it."""

    def child(self, name: str, kind: Kind, **attributes: Value) -> Span:
        """A step of this one, begun now."""
        ...

    def past(self, name: str, seconds: float) -> None:
        """A step of this one that took so long and is over now."""

    def end(self, error: str = "") -> None:
        """It is over; `error` is the reason of a failure (errors.py)."""


class Tracer(Protocol):
    """Begins the part of a trace that is in this process."""

    def entry(
        self, name: str, kind: Kind, parent: str = "", **attributes: Value
    ) -> AbstractContextManager[Setter]:
        """A span below a peer's (`parent`, a traceparent), or the first one of a new trace."""
        ...


class Setter(Protocol):
    """What the block of a span may do with it."""

    def set(self, **attributes: Value) -> None:
        """Say more of it."""


class _Nothing(AbstractContextManager["_Nothing"]):
    """Stands for a span where there is no trace."""

    def __exit__(self, *exc_info: object) -> None:
        pass

    def set(self, **attributes: Value) -> None:
        pass


class _Off:
    """A tracer of a process whose traces are turned off."""

    def entry(
        self, name: str, kind: Kind, parent: str = "", **attributes: Value
    ) -> AbstractContextManager[Setter]:
        """See Tracer."""
        return _NOTHING


_NOTHING = _Nothing()
OFF: Tracer = _Off()

_current: ContextVar[Span | None] = ContextVar("usbdra_span", default=None)


class Scope(AbstractContextManager[Span]):
    """Makes a span the current one, and ends it with the block."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Span:
        self._token = _current.set(self._span)
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._token)
        self._span.end(_reason(error))


def _reason(error: BaseException | None) -> str:
    """One of few words: an error's text may name anything."""
    if error is None:
        return ""
    if isinstance(error, UsbdraError):
        return error.reason
    if isinstance(error, asyncio.CancelledError):
        return "Cancelled"
    return "Timeout" if isinstance(error, TimeoutError) else "InternalError"


def span(
    name: str, kind: Kind = Kind.INTERNAL, **attributes: Value
) -> AbstractContextManager[Setter]:
    """A step of the current one, for a block."""
    parent = _current.get()
    return _NOTHING if parent is None else Scope(parent.child(name, kind, **attributes))


def spanned(name: str, kind: Kind = Kind.INTERNAL) -> Callable[[Work[P, T]], Work[P, T]]:
    """The same, for each call of a coroutine function."""

    def decorate(work: Work[P, T]) -> Work[P, T]:
        @functools.wraps(work)
        async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            if _current.get() is None:
                return await work(*args, **kwargs)
            with span(name, kind):
                return await work(*args, **kwargs)

        return wrapped

    return decorate


def phase(name: str, seconds: float) -> None:
    """A step of the current one that somebody has timed already, over now."""
    parent = _current.get()
    if parent is not None:
        parent.past(name, seconds)


def current() -> Span | None:
    """For work that others do later on behalf of this; see `under`."""
    return _current.get()


def traceparent(default: str = "") -> str:
    """What the peer of a request is told; `default` where this process traces nothing."""
    parent = _current.get()
    return default if parent is None else parent.traceparent


@contextmanager
def under(parent: Span | None) -> Iterator[None]:
    """The block's spans are steps of this one, which may be over."""
    token = _current.set(parent)
    try:
        yield
    finally:
        _current.reset(token)
