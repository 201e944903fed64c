# SPDX-License-Identifier: Apache-2.0
"""Values and names cut to what the API takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usbdra.slices import limits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DataTraveler 3.0", "DataTraveler 3.0"),
        ("  Flash \t Disk \n", "Flash Disk"),
        ("A\x01B\x7fC", "A B C"),
        ("bad \udcff end", "bad end"),
        ("   ", ""),
        ("", ""),
        ("x" * 67, "x" * 64),
        ("é" * 40, "é" * 32),
        ("漢" * 30, "漢" * 21),
        ("x" * 63 + "é", "x" * 63),
        ("x" * 63 + " y", "x" * 63),
        ("x" * 62 + "e\u0301", "x" * 62),  # the accent would be cut off its letter
        ("x" * 61 + "e\u0301", "x" * 61 + "e\u0301"),
    ],
)
def test_r36_text_is_trimmed_to_64_bytes_at_a_letter_boundary(text: str, expected: str) -> None:
    assert limits.clean_text(text) == expected


@given(st.text(alphabet=st.characters(), max_size=200))
def test_clean_text_always_fits(text: str) -> None:
    value = limits.clean_text(text)
    assert len(value.encode()) <= 64
    assert value == limits.clean_text(value)


def test_shorten_keeps_what_fits_and_tells_long_texts_apart() -> None:
    assert limits.shorten("node-a", 64) == "node-a"
    first, second = ("n" * 100 + end for end in ("1", "2"))
    assert len(limits.shorten(first, 64)) == 64
    assert limits.shorten(first, 64) != limits.shorten(second, 64)
    assert limits.shorten("ab-cdefghijklmnop", 16) == f"ab-{limits.digest('ab-cdefghijklmnop')}"


@pytest.mark.parametrize("bad", ["", "-a", "a-", "A", "a.b", "a_b", "é", "a" * 64])
def test_not_a_dns_label(bad: str) -> None:
    assert not limits.is_dns_label(bad)


@pytest.mark.parametrize("bad", ["", ".", "a..b", "a.-b", "a.B", "a/b", "a." * 127 + "a"])
def test_not_a_dns_subdomain(bad: str) -> None:
    assert not limits.is_dns_subdomain(bad)


@pytest.mark.parametrize("good", ["a", "a.b", "ip-10-0-0-1.eu-west-1.compute.internal"])
def test_a_dns_subdomain(good: str) -> None:
    assert limits.is_dns_subdomain(good)
