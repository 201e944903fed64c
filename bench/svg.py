# SPDX-License-Identifier: Apache-2.0
"""Three kinds of plot as SVG text: distributions side by side, costs over sizes, and samples of
call stacks (flames). Pure.

Both axes of costs, and the one of times, are logarithmic: what is compared spans decades. The same
numbers give the same text, so that a checked-in plot can be compared with what is made anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from operator import itemgetter

WIDTH = 860
LEFT, RIGHT, TOP = 330, 90, 34
ROW = 24
HEIGHT = 380
FONT = 'font-family="sans-serif" font-size="12"'
COLOURS = ("#1f5fa8", "#b3541e", "#2d7d46", "#7a3e9d", "#8a6d00", "#a0213f", "#3f6f78")
GREY, PALE, INK = "#888888", "#d9e4f2", "#222222"

Points = Sequence[tuple[float, float]]


def quantity(value: float, unit: str) -> str:
    """Three digits with the unit's prefix: 0.00203 s is `2.03 ms`; units but s as they are."""
    if unit != "s":
        return f"{value:.3g} {unit}".strip()
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= size or name == "µs":
            return f"{float(f'{value / size:.3g}'):g} {name}"
    raise AssertionError("unreachable")


def boxes(title: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Distributions in seconds: box from quarter to quarter, line from least to most, median.

    rows: a label and {min, q1, median, q3, max}, those of one value (a median alone) as a dot.
    """
    ends = [value for _, found in rows for value in (found["min"], found["max"])]
    axis = _Axis(min(ends), max(ends), LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * len(rows)
    parts = [_text(10, 20, title, weight="bold"), *_grid_down(axis, TOP, bottom, "s")]
    for number, (label, found) in enumerate(rows):
        parts += _box(axis, TOP + ROW * number + ROW // 2, label, found)
    return _svg(bottom + 30, parts)


def curves(title: str, across: str, unit: str, series: Mapping[str, Points]) -> str:
    """Costs over sizes, a line each, both axes logarithmic; zeros are drawn at the bottom."""
    sizes = [size for points in series.values() for size, _ in points]
    costs = [cost for points in series.values() for _, cost in points if cost > 0] or [1.0]
    x = _Axis(min(sizes), max(sizes), 80, WIDTH - 260)
    y = _Axis(min(costs), max(costs), HEIGHT - 50, TOP)
    parts = [_text(10, 20, title, weight="bold"), *_grid_across(y, x.start, x.end, unit)]
    for size in sorted(set(sizes)):
        parts.append(_line(x.at(size), TOP, x.at(size), HEIGHT - 50, GREY, "0.3"))
        parts.append(_text(x.at(size), HEIGHT - 32, f"{size:g}", anchor="middle"))
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 12, across, anchor="middle"))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        spots = [(x.at(size), y.at(cost) if cost > 0 else y.start) for size, cost in points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in spots]
        parts.append(_text(x.end + 14, TOP + 14 + 18 * number, name, fill=colour))
    return _svg(HEIGHT, parts)


def flames(title: str, stacks: Mapping[str, int], kinds: Sequence[str]) -> str:
    """A flame graph, upside down: width is part of all samples, what is below was called.

    stacks: samples by stack; frames from the outermost are parted by `;`, each a kind, whose
    place in `kinds` is its colour, and a name parted by `|`.
    """
    total = sum(stacks.values())
    top = TOP + 20
    scale = (WIDTH - 20) / total
    parts = [_text(10, 20, title, weight="bold")]
    for number, kind in enumerate(kinds):
        parts.append(_text(10 + 142 * number, 42, kind, fill=COLOURS[number]))
    depth = max(stack.count(";") for stack in stacks) + 1
    for level in range(depth):
        at = 10.0
        for path, count in _level(stacks, level):
            if path is not None:
                parts += _flame(at, top + 16 * level, count, total, path, kinds)
            at += count * scale
    return _svg(top + 16 * depth + 10, parts)


def _level(stacks: Mapping[str, int], level: int) -> Iterator[tuple[str | None, int]]:
    """Frames at a depth, side by side, each with all below it as one; None where there is none."""
    paths = (";".join(f[: level + 1]) if len(f := s.split(";")) > level else None for s in stacks)
    for path, group in groupby(zip(paths, stacks.values(), strict=True), key=itemgetter(0)):
        yield path, sum(count for _, count in group)


def _flame(
    x: float, y: float, count: int, total: int, path: str, kinds: Sequence[str]
) -> Iterator[str]:
    kind, _, name = path.rpartition(";")[2].partition("|")
    width = count / total * (WIDTH - 20)
    colour = COLOURS[kinds.index(kind)]
    yield (
        f"<g><title>{escape(name)}: {100 * count / total:.1f} %</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="15" fill="{colour}" '
        'fill-opacity="0.35" stroke="white" stroke-width="0.5"/>'
    )
    letters = int((width - 6) / 6)
    if letters >= 4:
        shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
        yield (
            f'<text x="{x + 3:.1f}" y="{y + 11}" font-size="10" fill="{INK}">{escape(shown)}</text>'
        )
    yield "</g>"


class _Axis:
    """Values from the least to the most on a stretch of pixels, logarithmic, with some room."""

    def __init__(self, least: float, most: float, start: float, end: float) -> None:
        least = max(least, most * 1e-9, 1e-12)
        room = max((most / least) ** 0.06, 1.1)
        self.start, self.end = start, end
        self.least, self.most = least / room, most * room

    def at(self, value: float) -> float:
        part = math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        return self.start + (self.end - self.start) * part

    def ticks(self) -> list[float]:
        """Round values: 1, 2 and 5 of each decade, or its 1 alone where those are many."""
        powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        for digits in ((1, 2, 5), (1,)):
            found = [d * 10.0**p for p in powers for d in digits]
            inside = [value for value in found if self.least <= value <= self.most]
            if len(inside) <= 9:
                break
        return inside


def _box(axis: _Axis, y: float, label: str, found: Mapping[str, float]) -> Iterator[str]:
    at = {key: axis.at(found[key]) for key in ("min", "q1", "median", "q3", "max")}
    yield _text(LEFT - 10, y + 4, label, anchor="end")
    if at["max"] - at["min"] < 1:
        yield f'<circle cx="{at["median"]:.1f}" cy="{y}" r="4" fill="{COLOURS[0]}"/>'
    else:
        yield _line(at["min"], y, at["max"], y, INK)
        width = max(at["q3"] - at["q1"], 1.0)
        yield (
            f'<rect x="{at["q1"]:.1f}" y="{y - 6}" width="{width:.1f}" height="12" '
            f'fill="{PALE}" stroke="{COLOURS[0]}"/>'
        )
        yield _line(at["median"], y - 6, at["median"], y + 6, COLOURS[0], "2")
    yield _text(WIDTH - RIGHT + 8, y + 4, quantity(found["median"], "s"))


def _grid_down(axis: _Axis, top: float, bottom: float, unit: str) -> Iterator[str]:
    for value in axis.ticks():
        yield _line(axis.at(value), top, axis.at(value), bottom, GREY, "0.3")
        yield _text(axis.at(value), bottom + 18, quantity(value, unit), anchor="middle")


def _grid_across(axis: _Axis, left: float, right: float, unit: str) -> Iterator[str]:
    for value in axis.ticks():
        yield _line(left, axis.at(value), right, axis.at(value), GREY, "0.3")
        yield _text(left - 8, axis.at(value) + 4, quantity(value, unit), anchor="end")


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: str = "1") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", **more: str) -> str:
    look = {"fill": INK, "weight": "normal", **more}
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{look["fill"]}" '
        f'font-weight="{look["weight"]}">{escape(text)}</text>'
    )


def _svg(height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" {FONT}>'
    )
    ground = f'<rect width="{WIDTH}" height="{height:g}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"
