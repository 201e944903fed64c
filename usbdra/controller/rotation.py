# SPDX-License-Identifier: Apache-2.0
"""The life of the cluster's CA: which one signs, which are believed, when that changes. Pure.

Owns the steps of a rotation. A new CA is believed everywhere before it signs, and the old one
until nothing it signed is valid any more:

    signs OLD, believed OLD          two thirds of its life are over, or somebody asked
    signs OLD, believed OLD NEW      the bundle has been out for `settle`
    signs NEW, believed OLD NEW      every certificate that OLD signed has expired
    signs NEW, believed NEW

Time and new CAs come in as arguments. Must not do I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from usbdra.pki.authority import BACKDATED, Pair

if TYPE_CHECKING:
    from cryptography import x509

MakeAuthority = Callable[[datetime], Pair]


@dataclass(frozen=True, slots=True)
class Timing:
    """Lifetimes. settle: how long a new CA is believed before it signs; leaf: a node's
    certificate. Both only slow a rotation down; links that run never notice one."""

    settle: timedelta = timedelta(hours=1)
    leaf: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Authorities:
    """The CAs of one moment. At most one of `next` and `previous` is there; `since` is when it
    came (or when the signing one was made)."""

    signing: Pair
    since: datetime
    next: Pair | None = None
    previous: x509.Certificate | None = None

    @property
    def believed(self) -> tuple[x509.Certificate, ...]:
        """What belongs in the bundle."""
        others = [self.next.cert] if self.next else []
        return (
            self.signing.cert,
            *others,
            *([self.previous] if self.previous else []),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The CAs from now on, and when to look again."""

    authorities: Authorities
    again: datetime


def plan(
    found: Authorities | None,
    published: Collection[x509.Certificate],
    now: datetime,
    timing: Timing,
    make: MakeAuthority,
    *,
    asked: bool = False,
) -> Plan:
    """The next step, if one is due. found: None when there is no CA yet.

    published: what the bundle holds right now; `asked`: somebody wants a rotation, which begins
    when none is under way.
    """
    if found is None or found.signing.cert.not_valid_after_utc <= now:
        return _look(_fresh(found, now, make), now, timing)
    if found.next is not None:
        if found.next.cert not in published:
            return _look(replace(found, since=now), now, timing)
        if now >= found.since + timing.settle:
            promoted = Authorities(found.next, now, previous=found.signing.cert)
            return _look(promoted, now, timing)
    elif found.previous is not None:
        if now >= found.since + timing.leaf + BACKDATED:
            return _look(replace(found, previous=None, since=now), now, timing)
    elif asked or now >= _due(found.signing.cert):
        return _look(replace(found, next=make(now), since=now), now, timing)
    return _look(found, now, timing)


def _fresh(found: Authorities | None, now: datetime, make: MakeAuthority) -> Authorities:
    """Nothing that signs: nobody has a certificate that is still valid, or nobody ever had."""
    follower = found.next if found is not None else None
    if follower is not None and follower.cert.not_valid_after_utc > now:
        return Authorities(follower, now)
    return Authorities(make(now), now)


def _look(authorities: Authorities, now: datetime, timing: Timing) -> Plan:
    if authorities.next is not None:
        again = authorities.since + timing.settle
    elif authorities.previous is not None:
        again = authorities.since + timing.leaf + BACKDATED
    else:
        again = _due(authorities.signing.cert)
    return Plan(authorities, max(again, now + timedelta(seconds=1)))


def _due(cert: x509.Certificate) -> datetime:
    """Two thirds of a certificate's life."""
    begin, end = cert.not_valid_before_utc, cert.not_valid_after_utc
    return begin + (end - begin) * 2 / 3
