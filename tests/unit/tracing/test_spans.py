# SPDX-License-Identifier: Apache-2.0
"""Spans of a task: none without a trace, and the right ones above them with one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.fakes.traces import Kept
from usbdra.errors import Refused
from usbdra.tracing import spans
from usbdra.tracing.otel import OtelTracer
from usbdra.tracing.spans import OFF, Kind, span, spanned


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def tracer(kept: Kept) -> Iterator[OtelTracer]:
    made = OtelTracer("t", kept)
    yield made
    made.close()


@spanned("work")
async def work(error: BaseException | None = None) -> int:
    """Does it."""
    if error is not None:
        raise error
    return 7


async def test_without_a_trace_all_is_nothing() -> None:
    with OFF.entry("root", Kind.SERVER, "", claim="c") as root, span("step") as step:
        root.set(result="ok")
        step.set(device="d")
        assert spans.current() is None
        assert spans.traceparent() == ""
        assert spans.traceparent("from elsewhere") == "from elsewhere"
        spans.phase("connect", 0.5)
        assert await work() == 7
    assert OFF.entry("a", Kind.SERVER) is span("b"), "one object: nothing is made"


def test_a_decorated_function_keeps_its_name_and_words() -> None:
    assert work.__name__ == "work"
    assert work.__doc__ == "Does it."


async def test_steps_are_below_the_step_that_they_are_done_in(
    tracer: OtelTracer, kept: Kept
) -> None:
    with tracer.entry("root", Kind.SERVER, claim="lab/one"):
        with span("take", device="stick"), span("grant", Kind.CLIENT):
            spans.phase("attach", 0.25)
        await work()
    assert spans.current() is None
    tracer.flush()
    assert {kept.path(step)[-1]: kept.path(step)[:-1] for step in kept.all} == {
        "t root": [],
        "t take": ["t root"],
        "t grant": ["t root", "t take"],
        "t attach": ["t root", "t take", "t grant"],
        "t work": ["t root"],
    }
    assert len(kept.traces()) == 1
    assert kept.named("root").attributes == {"usbdra.claim": "lab/one"}
    assert [kept.named(n).kind for n in ("root", "take", "grant")] == [
        "SERVER",
        "INTERNAL",
        "CLIENT",
    ]
    assert kept.named("attach").took == 250_000_000


async def test_tasks_and_other_loops_go_on_with_it(tracer: OtelTracer, kept: Kept) -> None:
    """As the exporter's desk does, whose thread calls what runs on the agent's loop."""
    loop = asyncio.get_running_loop()

    def elsewhere() -> None:
        with tracer.entry("desk", Kind.SERVER):
            asyncio.run_coroutine_threadsafe(work(), loop).result(10)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    with tracer.entry("root", Kind.SERVER):
        task = asyncio.create_task(work())
    assert await task == 7
    tracer.flush()
    ways = [kept.path(step) for step in kept.all if step.name == "work"]
    assert ways == [["t desk", "t work"], ["t root", "t work"]]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (Refused("device of lab/secret"), "Refused"),
        (asyncio.CancelledError(), "Cancelled"),
        (TimeoutError("10 s"), "Timeout"),
        (ValueError("a bug"), "InternalError"),
    ],
)
async def test_a_failed_step_says_why_in_one_word(
    tracer: OtelTracer, kept: Kept, error: BaseException, word: str
) -> None:
    with pytest.raises(type(error)), tracer.entry("root", Kind.SERVER):
        await work(error)
    tracer.flush()
    for name in ("work", "root"):
        assert kept.named(name).attributes == {"error.type": word}


async def test_what_is_done_later_for_a_trace_is_a_step_of_it(
    tracer: OtelTracer, kept: Kept
) -> None:
    with tracer.entry("root", Kind.SERVER):
        about = spans.current()
    with spans.under(about), span("status"):
        pass
    with spans.under(None), span("nobody's"):
        pass
    tracer.flush()
    assert kept.path(kept.named("status")) == ["t root", "t status"]
    assert len(kept.all) == 2
