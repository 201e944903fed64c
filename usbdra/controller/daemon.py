# SPDX-License-Identifier: Apache-2.0
"""The controller process: stands for election, runs the parts while it leads.

Owns composition, signals and the order of start and end. Decides nothing about objects.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from usbdra.controller.health import HealthServer
from usbdra.controller.leader import Leader
from usbdra.controller.metering import Metering
from usbdra.controller.options import ControllerOptions
from usbdra.controller.parts import Office, factories, run_parts
from usbdra.dumping import StateDump
from usbdra.kube.client import KubeClient
from usbdra.stopping import until_told

log = logging.getLogger(__name__)


async def run(options: ControllerOptions) -> None:
    """Be a controller until SIGTERM or SIGINT."""
    dump = StateDump()
    await until_told(serve(options, dump), "controller", dump)


async def serve(options: ControllerOptions, dump: StateDump) -> None:
    """Stand for election again and again, until cancelled."""
    async with AsyncExitStack() as stack:
        seen = asyncio.Event()
        checks = {"/livez": lambda: True, "/readyz": seen.is_set}
        health = HealthServer(options.health, checks)
        await health.start()
        stack.push_async_callback(health.stop)
        metering = Metering(options.metrics)
        api = await KubeClient.connect(options.kubeconfig, on_answer=metering.answered)
        stack.push_async_callback(api.aclose)
        if options.web is not None:
            from usbdra.controller.web.server import WebServer

            page = WebServer(api, options.contract, options.web)
            await page.start()
            stack.push_async_callback(page.stop)
        leader = Leader(api, options.lease, options.namespace, options.identity, on_seen=seen.set)
        office = Office(api, options, metering, dump)
        dump.add("controller", lambda: {"identity": options.identity, "leads": leader.leading})
        async with asyncio.TaskGroup() as group:
            group.create_task(metering.serve(lambda: leader.leading))
            while True:
                await leader.lead(lambda: run_parts(office, factories(options)))
