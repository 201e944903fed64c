# SPDX-License-Identifier: Apache-2.0
"""The life of the CA: no node is ever without a certificate that all others believe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.controller.rotation import Authorities, Plan, Timing, plan
from usbdra.pki.authority import BACKDATED, Pair, make_authority

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LIFE = timedelta(days=30)
TIMING = Timing(settle=timedelta(hours=1), leaf=timedelta(hours=24))
MINUTE = timedelta(minutes=1)


def make(now: datetime) -> Pair:
    return make_authority("usbdra CA", now, LIFE)


def step(found: Authorities | None, now: datetime, *, asked: bool = False) -> Plan:
    """One step with a bundle that holds all that was believed before."""
    return plan(found, found.believed if found else (), now, TIMING, make, asked=asked)


def test_the_first_ca_signs_at_once_and_is_looked_at_after_two_thirds() -> None:
    first = step(None, START)
    assert first.authorities.believed == (first.authorities.signing.cert,)
    assert first.again == START - BACKDATED + (LIFE + BACKDATED) * 2 / 3
    assert step(first.authorities, START + MINUTE).authorities is first.authorities


def test_a_rotation_in_its_steps() -> None:
    old = step(None, START).authorities
    due = START + LIFE * 2 / 3
    begun = step(old, due)
    new = begun.authorities.next
    assert new is not None
    assert begun.authorities.signing is old.signing
    assert begun.authorities.believed == (old.signing.cert, new.cert)
    assert begun.again == due + TIMING.settle
    waiting = step(begun.authorities, due + TIMING.settle - MINUTE)
    assert waiting.authorities is begun.authorities
    promoted = step(begun.authorities, due + TIMING.settle).authorities
    assert (promoted.signing, promoted.next) == (new, None)
    assert promoted.believed == (new.cert, old.signing.cert)
    over = due + TIMING.settle + TIMING.leaf + BACKDATED
    assert step(promoted, over - MINUTE).authorities is promoted
    assert step(promoted, over).authorities.believed == (new.cert,)


def test_a_rotation_on_request_begins_when_none_is_under_way() -> None:
    old = step(None, START).authorities
    begun = step(old, START + MINUTE, asked=True).authorities
    assert begun.next is not None
    again = step(begun, START + 2 * MINUTE, asked=True).authorities
    assert again is begun


def test_what_was_not_published_does_not_sign() -> None:
    begun = step(step(None, START).authorities, START + MINUTE, asked=True).authorities
    late = START + 2 * TIMING.settle
    held = plan(begun, (begun.signing.cert,), late, TIMING, make)
    assert held.authorities.signing is begun.signing
    assert (held.authorities.since, held.again) == (late, late + TIMING.settle)


def test_after_years_without_a_controller() -> None:
    old = step(None, START).authorities
    later = START + 10 * LIFE
    fresh = step(old, later).authorities
    assert fresh.believed == (fresh.signing.cert,)
    assert fresh.signing.cert.not_valid_after_utc == later + LIFE
    begun = Authorities(old.signing, START, next=make(START + LIFE - MINUTE))
    assert step(begun, START + LIFE + MINUTE).authorities.signing is begun.next


Pace = st.integers(1, 20 * 24 * 60)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(Pace, st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_a_certificate_that_was_signed_is_believed_until_it_expires(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Whenever the controller looks, and whether or not it can publish."""
    now, found, bundle = START, None, ()  # type: datetime, Authorities | None, tuple[x509.Certificate, ...]
    issued: list[tuple[x509.Certificate, datetime]] = []
    for minutes, asked, publishes in steps:
        now += minutes * MINUTE
        found = plan(found, bundle, now, TIMING, make, asked=asked).authorities
        if not publishes:
            continue
        bundle = found.believed
        assert found.signing.cert in bundle
        end = min(now + TIMING.leaf, found.signing.cert.not_valid_after_utc)
        issued.append((found.signing.cert, end))
        assert all(ca in bundle for ca, until in issued if until > now)
