# SPDX-License-Identifier: Apache-2.0
"""JSON bodies of any content are a value or a ProtocolError; good values come back equal."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.broker import STICK
from tests.searching import examples
from usbdra.errors import ProtocolError
from usbdra.usbip import extension, wire
from usbdra.usbip.extension import GrantReply
from usbdra.usbip.fields import clean_text

PARSERS = (
    extension.parse_grant_request,
    extension.parse_grant_reply,
    extension.parse_refusal,
    extension.parse_inventory,
    extension.parse_inventory_request,
)
GOOD = json.loads(extension.pack_grant_reply(GrantReply(STICK, (("bind", 0.1),))))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(st.binary(max_size=200))
@settings(max_examples=examples(200))
def test_any_bytes(body: bytes) -> None:
    for parse in PARSERS:
        with contextlib.suppress(ProtocolError):
            parse(body)


@given(field=st.sampled_from([*GOOD["device"], "", "timings"]), value=JSON)
@settings(max_examples=examples(200))
def test_any_value_in_any_field(field: str, value: object) -> None:
    """Whatever is accepted is safe to use: it can be packed again and stays within its caps."""
    fields = {**GOOD, "device": dict(GOOD["device"])}
    if field in ("", "timings"):
        fields[field or "device"] = value
    else:
        fields["device"][field] = value
    body = json.dumps(fields).encode()
    try:
        reply = extension.parse_grant_reply(body)
    except ProtocolError:
        return
    again = extension.pack_grant_reply(reply)
    assert len(again) <= wire.MAX_GRANT_BODY
    assert extension.parse_grant_reply(again).device == reply.device
    assert wire.is_busid(reply.device.busid)
    assert wire.parse_device(wire.pack_device(reply.device)).device.devid == reply.device.devid


@given(st.text(max_size=300), st.integers(0, 64))
@settings(max_examples=examples(200))
def test_clean_text_is_safe(text: str, limit: int) -> None:
    clean = clean_text(text, limit)
    assert clean.isprintable()
    assert len(clean.encode()) <= limit
    assert clean_text(clean, limit) == clean
