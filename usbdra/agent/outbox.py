# SPDX-License-Identifier: Apache-2.0
"""What is queued for the API server goes out as soon as the server answers.

Owns the waiting and the pauses; what is queued, and what is dropped, is the caller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from usbdra.kube import errors

BACKOFF = (0.5, 30.0)
"""Seconds: the first pause when the server does not answer, and the longest."""


async def keep_sending(
    work: asyncio.Event,
    send: Callable[[], Awaitable[None]],
    backoff: tuple[float, float],
    log: logging.Logger,
    what: str,
) -> None:
    """Call `send` whenever `work` is set, for ever; again after a pause on ApiUnavailable."""
    low, high = backoff
    pause = low
    while True:
        await work.wait()
        work.clear()
        try:
            await send()
        except errors.ApiUnavailable as error:
            log.warning("%s wait: %s", what, error)
            work.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, high)
        else:
            pause = low
