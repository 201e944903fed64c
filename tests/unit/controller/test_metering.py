# SPDX-License-Identifier: Apache-2.0
"""What the controller counts, and what it says of the cluster while it leads."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.fakes.exporter import free_port
from tests.unit.metrics.test_meters import values
from usbdra.controller.acts import What
from usbdra.controller.metering import Metering
from usbdra.controller.outsidehost import HostFacts
from usbdra.controller.published import Published, Reach, SlicePart
from usbdra.controller.queue import WorkQueue
from usbdra.controller.world import Numbers, World
from usbdra.errors import NotFound
from usbdra.kube.custom import Contract
from usbdra.types import DeviceName, NodeName

HOSTS = (
    HostFacts("pi", True, 2, 1e9, 2e9),
    HostFacts("pc", False, 0, None, None),
)
SEEN = Numbers(reach={"Cluster": 5, "Local": 1}, nodes=3, devices=6, assigned=4)


async def found(metering: Metering, *, leading: bool) -> dict[str, float]:
    metering.follow_world(lambda: SEEN)
    metering.follow_authority(lambda: (2e9, 1000.0))
    metering.follow_outside(lambda: HOSTS)
    metering.follow_queue("devices", lambda: (7, 2))
    task = asyncio.create_task(metering.serve(lambda: leading))
    await asyncio.sleep(0)
    assert metering._meters is not None
    result = await values(metering._meters)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return result


async def test_what_the_leader_says() -> None:
    says = await found(Metering(("127.0.0.1", free_port())), leading=True)
    assert says["usbdra_leader[]"] == 1
    assert says["usbdra_queue_depth['devices']"] == 7
    assert says["usbdra_queue_failing['devices']"] == 2
    assert says["usbdra_queue_depth['attachments']"] == 0
    assert says["usbdra_published_devices['Cluster']"] == 5
    assert says["usbdra_published_devices['Node']"] == 0
    assert says["usbdra_publishing_nodes[]"] == 3
    assert says["usbdra_assigned_devices[]"] == 4
    assert says["usbdra_certificate_expiry_timestamp_seconds['ca']"] == 2e9
    assert says["usbdra_collect_errors_total[]"] == 0


async def test_what_the_leader_says_of_hosts_outside() -> None:
    metering = Metering(("127.0.0.1", free_port()))
    metering.looked_outside("ok")
    metering.looked_outside("Unreachable")
    says = await found(metering, leading=True)
    assert (says["usbdra_outside_hosts['ready']"], says["usbdra_outside_hosts['silent']"]) == (1, 1)
    of_hosts = {key: value for key, value in says.items() if key.startswith("usbdra_outside_host_")}
    assert of_hosts == {
        "usbdra_outside_host_ready['pi']": 1,
        "usbdra_outside_host_ready['pc']": 0,
        "usbdra_outside_host_devices['pi']": 2,
        "usbdra_outside_host_devices['pc']": 0,
        "usbdra_outside_host_seen_timestamp_seconds['pi']": 1e9,
        "usbdra_outside_host_certificate_expiry_timestamp_seconds['pi']": 2e9,
    }
    for result, number in (("ok", 1), ("Unreachable", 1), ("PeerTimeout", 0)):
        assert says[f"usbdra_outside_looks_total['{result}']"] == number


async def test_without_hosts_outside_there_are_none() -> None:
    metering = Metering(("127.0.0.1", free_port()))
    assert metering._meters is not None
    task = asyncio.create_task(metering.serve(lambda: True))
    await asyncio.sleep(0)
    says = await values(metering._meters)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (says["usbdra_outside_hosts['ready']"], says["usbdra_outside_hosts['silent']"]) == (0, 0)


async def test_who_waits_to_lead_says_nothing_of_the_cluster() -> None:
    says = await found(Metering(("127.0.0.1", free_port())), leading=False)
    assert says["usbdra_leader[]"] == 0
    assert says["usbdra_queue_depth['devices']"] == 0
    assert "usbdra_publishing_nodes[]" not in says
    assert not any(key.startswith("usbdra_outside_host") for key in says)
    assert "usbdra_published_devices['Cluster']" not in says


async def test_looks_at_objects_and_their_end() -> None:
    metering = Metering(("127.0.0.1", 0))

    async def handle(key: str) -> None:
        if key == "bad":
            raise NotFound("gone")
        if key == "worse":
            raise ValueError("ours")

    queue = WorkQueue(handle, on_done=lambda *one: metering.looked("devices", *one))
    for key in ("good", "bad", "worse"):
        queue.add(key)
    assert queue.depth == 3
    task = asyncio.create_task(queue.run())
    await queue.drained()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert metering._meters is not None
    says = await values(metering._meters)
    results = ("ok", "NotFound", "InternalError")
    keys = [f"usbdra_queue_results_total{sorted(('devices', r))}" for r in results]
    assert [says[key] for key in keys] == [1, 1, 1]
    assert says["usbdra_queue_duration_seconds_count['devices']"] == 3
    assert (queue.depth, queue.failing) == (0, 2)


def test_the_world_in_numbers() -> None:
    world = World(Contract("usb.example.com"), timedelta(0))
    for node, reach in (("a", Reach.CLUSTER), ("b", Reach.NODE)):
        device = Published(DeviceName(f"stick-{node}"), NodeName(node), reach, {})
        world.put_slice(f"usb-{node}-0", SlicePart(f"usb-{node}", 1, 1, (device,)))
        world.put_slice(f"usblink-{node}-0", SlicePart(f"usblink-{node}", 1, 1, ()))
    for name, spec in (("one", {"assignedNamespace": "lab"}), ("two", {})):
        meta = {"name": name, "uid": name}
        world.put(What.NODE_DEVICE, ("", name), {"metadata": meta, "spec": spec, "status": {}})
    assert world.numbers() == Numbers({"Cluster": 1, "Node": 1}, nodes=2, devices=2, assigned=1)
