# SPDX-License-Identifier: Apache-2.0
"""How a long-running part of the program ends: by SIGTERM or SIGINT, in order.

Owns the signal handlers. What is to be undone at the end is the work's own.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine

from usbdra.dumping import StateDump, answering

log = logging.getLogger(__name__)


async def until_told(
    work: Coroutine[None, None, None], name: str, dump: StateDump | None = None
) -> None:
    """Run `work` until it ends by itself, or until a signal cancels it, and let it clean up.

    Meanwhile signals are answered as dumping.py says, with the state of `dump`. A second signal
    to stop does not cut the cleaning short: the one who is in a hurry has SIGKILL. Raises what
    `work` raises.
    """
    task = asyncio.create_task(work)

    def stop() -> None:
        if not task.cancelling():
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        with answering(dump or StateDump()):
            await task
    except asyncio.CancelledError:
        log.info("%s stopped", name)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
