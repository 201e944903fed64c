# SPDX-License-Identifier: Apache-2.0
"""Samples of a Prepare: what counts as one, what it is called, and how it is drawn."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.flame import folded
from bench.svg import flames

PY = "process 1:py -m bench.flame.repeated"
EXPORTER = "process 2:py -m bench.cluster.pair exporter"
START = "0x7f3084524a (libc.so.6);_run_once (asyncio/base_events.py:1910)"
PREPARE = "Preparer.prepare (usbdra/plugin/prepare.py:140)"
B = f"{folded.OURS}|{folded.NODES[0]}"
A = f"{folded.OURS}|{folded.NODES[1]}"
PREPARED = f"{folded.OURS}|Preparer.prepare (plugin/prepare)"


@pytest.mark.parametrize(
    ("frames", "stack"),
    [
        (f"{PY};{START};{PREPARE}", f"{B};{PREPARED}"),
        (
            f"{PY};{START};{PREPARE};spanned.<locals>.wrapped (usbdra/tracing/spans.py:9);"
            "Preparer.prepare (usbdra/plugin/prepare.py:151);"
            "VhciDriver.table (usbdra/vhci/driver.py:9);"
            "read_at (usbdra/_native/sysfs.cpython-311-x86_64-linux-gnu.so);read (libc.so.6)",
            f"{B};{PREPARED};{folded.OURS}|VhciDriver.table (vhci/driver);"
            f"{folded.OURS_C}|read_at (_native/sysfs);{folded.SYSTEM}|read",
        ),
        (
            f"{PY};{EXPORTER};{START};ExporterServer._serve (usbdra/exporter/server.py:1);"
            "SSLObject.do_handshake (ssl.py:979);0x7f (libcrypto.so.3)",
            f"{A};{folded.OURS}|ExporterServer._serve (exporter/server);"
            f"{folded.PYTHON}|SSLObject.do_handshake (ssl);{folded.TLS}|libcrypto",
        ),
    ],
)
def test_a_stack_begins_with_its_node_and_ours(frames: str, stack: str) -> None:
    assert folded.of_prepare([f"{frames} 3", f"{frames} 4"]) == {stack: 7}


@pytest.mark.parametrize(
    "frames",
    [
        START,
        f"{PREPARE};_find_and_load (<frozen importlib._bootstrap>:1176)",
        "Preparer.unprepare (usbdra/plugin/prepare.py:9);Records.put (usbdra/plugin/records.py:1)",
        f"{PREPARE};FakeVhci.attach (tests/fakes/kernel_vhci.py:10)",
        "RecordStore.save (usbdra/state/store.py:1);wait4 (libc.so.6)",
        "gc_collect_main (libpython3.11.so.1.0)",
    ],
)
def test_what_is_no_prepare_is_left_out(frames: str) -> None:
    assert folded.of_prepare([f"{PY};{frames} 5"]) == {}


def test_small_stacks_are_shortened_and_nothing_is_lost() -> None:
    big, small = f"{B};{PREPARED}", f"{B};{PREPARED};{folded.SYSTEM}|read"
    whole = {big: 990, f"{small};{folded.OTHER}|x": 1, small: 1, f"{B};{folded.PYTHON}|y;z|z": 8}
    assert folded.cut(whole) == {big: 992, f"{B};{folded.PYTHON}|y;z|z": 8}
    assert sum(folded.cut(whole).values()) == sum(whole.values())


def test_parts_of_all_samples_by_where_they_end() -> None:
    parts = folded.shares({f"{B};{PREPARED}": 1, f"{B};{PREPARED};{folded.SYSTEM}|fsync": 3})
    assert parts == dict.fromkeys(folded.KINDS, 0.0) | {folded.OURS: 0.25, folded.SYSTEM: 0.75}


def test_a_frame_is_as_wide_as_what_is_below_it() -> None:
    stacks = {"k|a": 1, "k|a;l|<b>": 2, "k|a;l|<b>;k|c": 1, "l|d": 4}
    root = ElementTree.fromstring(flames("t", stacks, ("k", "l")))
    svg = "{http://www.w3.org/2000/svg}"
    said = [
        (group.findtext(f"{svg}title"), float(rect.get("width", "")), float(rect.get("x", "")))
        for group in root.iter(f"{svg}g")
        if (rect := group.find(f"{svg}rect")) is not None
    ]
    assert said == [
        ("a: 50.0 %", 420.0, 10.0),
        ("d: 50.0 %", 420.0, 430.0),
        ("<b>: 37.5 %", 315.0, 115.0),
        ("c: 12.5 %", 105.0, 325.0),
    ]
