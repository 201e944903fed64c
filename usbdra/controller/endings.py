# SPDX-License-Identifier: Apache-2.0
"""Claims and nodes that end, told by the part that watches them to the one that has to act.

Owns the way from one part to another, which knows when it looks again what is true. Parts are made
anew with each term of office, so a later listener replaces the earlier.
"""

from __future__ import annotations

from collections.abc import Callable

from usbdra.kube.watch import Key


class Endings:
    """See the module."""

    def __init__(self) -> None:
        self._listener: Callable[[Key], None] = lambda key: None

    def follow(self, listener: Callable[[Key], None]) -> None:
        """Who hears of it from now on."""
        self._listener = listener

    def tell(self, key: Key) -> None:
        """This claim is gone or has no device of ours any more, or this Node ("" for its
        namespace) is gone."""
        self._listener(key)
