# SPDX-License-Identifier: Apache-2.0
"""The first line of the namespace fence, whole: assignment, taints by the agent, policies,
scheduler. Accounts have the chart's rights and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, NAMESPACE, installed
from tests.api.conftest import MakeNode
from tests.api.devices import until
from tests.api.policies import KINDS, claim, link, refusal, usb
from tests.cluster.api import ClusterApi
from tests.cluster.manifests import pod
from tests.unit.slices.samples import offer
from usbdra.agent.assignments import Assignments
from usbdra.agent.nodeobjects import NodeObjects
from usbdra.controller.options import ControllerOptions
from usbdra.controller.parts import Office, factories, run_parts
from usbdra.errors import Refused
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.types import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Object
from usbdra.slices.build import SliceOptions, build
from usbdra.slices.publish import Owner, SlicePublisher
from usbdra.types import DeviceName, Hub, NodeName

NAMES = Contract(GROUP)
STICK = DeviceName("usb-0951-1666-60a44c413fae")
RIGHTS = frozenset({"CustomResourceDefinition", "Role", "RoleBinding"})


@pytest.fixture(scope="module", autouse=True)
def chart(api: ClusterApi) -> Iterator[None]:
    values = {"policies.enabled": "true", "requireAssignment": "true"}
    with installed(api, values, lambda item: item["kind"] in KINDS | RIGHTS):
        api.kubectl("wait", "--for=condition=Established", "crd", f"nodeusbdevices.{GROUP}")
        yield


@pytest_asyncio.fixture
async def admin(accounts: Accounts, api: ClusterApi) -> AsyncIterator[KubeClient]:
    yield await accounts.admin()
    api.kubectl("delete", "nusb,resourceslices", "--all")


@asynccontextmanager
async def system(accounts: Accounts, admin: KubeClient, node: str) -> AsyncIterator[Assignments]:
    """The controller, and the part of a node's agent that publishes."""
    client = await accounts.client(NAMESPACE, "usbdra-agent", node)
    office = Office(
        await accounts.client(NAMESPACE, "usbdra-controller"),
        ControllerOptions(identity="one", namespace=NAMESPACE),
    )
    objects = NodeObjects(client, NAMES, NodeName(node))
    fence = Assignments(objects, NAMES, required=True)
    offers = [offer(STICK)]

    def wanted(dropped: frozenset[str]) -> list[Object]:
        options = SliceOptions(
            node=node, group=GROUP, taints=fence.taints(one.name for one in offers)
        )
        return build(offers, {Hub.HIGH: 8}, options)

    uid = str((await admin.get(NODE, node))["metadata"]["uid"])
    publisher = SlicePublisher(client, Owner(node, uid, NAMES.driver), wanted)
    fence.on_change = publisher.wake
    async with AsyncExitStack() as stack:
        for work in (
            run_parts(office, factories(office.options)),
            objects.run(),
            publisher.run(),
        ):
            task = asyncio.create_task(work)
            stack.push_async_callback(asyncio.wait, [task])
            stack.callback(task.cancel)
        yield fence


def taints(item: Object | None) -> list[tuple[str, str]]:
    """(key, value) of the taints of a slice's devices."""
    devices = ((item or {}).get("spec") or {}).get("devices") or ()
    return [(t["key"], t.get("value", "")) for d in devices for t in d.get("taints") or ()]


def allocated(item: Object | None) -> bool:
    return bool(((item or {}).get("status") or {}).get("allocation"))


def unschedulable(item: Object | None) -> bool:
    conditions = ((item or {}).get("status") or {}).get("conditions") or ()
    return any(one.get("reason") == "Unschedulable" for one in conditions)


def user(name: str, claim_name: str) -> dict[str, Any]:
    made = pod(name, resourceClaims=[{"name": "usb", "resourceClaimName": claim_name}])
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "usb"}]}
    return made


async def test_a_device_is_allocated_to_its_namespace_alone(
    api: ClusterApi,
    accounts: Accounts,
    admin: KubeClient,
    make_node: MakeNode,
    namespace: str,
) -> None:
    """Selected by CEL and by exact name from elsewhere, without and with a toleration."""
    node = make_node(labels={f"{GROUP}/usbip": "true"})
    slice_name = build([offer(STICK)], {}, SliceOptions(node=node, group=GROUP))[0]["metadata"][
        "name"
    ]
    by_name = {"cel": {"expression": f'device.attributes["usb.{GROUP}"].name == "{STICK}"'}}
    tie = [{"requests": ["usb", "link/direct"], "matchAttribute": f"usb.{GROUP}/node"}]

    def asking(name: str, **changes: Any) -> dict[str, Any]:
        made = claim(name, usb(**changes), link())
        made["spec"]["devices"]["constraints"] = tie
        return made

    own = {"key": f"{GROUP}/assigned", "operator": "Equal", "value": "default"}
    async with system(accounts, admin, node) as fence:
        await until(
            admin, RESOURCE_SLICE, slice_name,
            lambda item: taints(item) == [(f"{GROUP}/unassigned", "")],
        )  # fmt: skip
        with pytest.raises(Refused):
            fence.require(STICK, namespace)
        await until(admin, NAMES.node_device, STICK, lambda item: item is not None)
        await admin.merge(NAMES.node_device, STICK, {"spec": {"assignedNamespace": namespace}})
        await until(
            admin, RESOURCE_SLICE, slice_name,
            lambda item: taints(item) == [(f"{GROUP}/assigned", namespace)],
        )  # fmt: skip
        fence.require(STICK, namespace)
        outsiders = {
            "any": asking("any"),
            "exact": asking("exact", selectors=[by_name]),
            "own": asking("own", selectors=[by_name], tolerations=[own]),
        }
        for name, item in outsiders.items():
            api.apply([item, user(name, name)], "default")
            await until(admin, POD, name, unschedulable, "default")
        forged = asking("forged", tolerations=[{**own, "value": namespace}])
        assert "are not tolerated from here" in str(refusal(api, forged))
        await until(admin, RESOURCE_CLAIM, STICK, lambda item: item is not None, namespace)
        api.apply(user("insider", STICK), namespace)
        done = await until(admin, RESOURCE_CLAIM, STICK, allocated, namespace)
        results = done["status"]["allocation"]["devices"]["results"]
        assert STICK in {result["device"] for result in results}
        for name in outsiders:
            assert not allocated(await admin.get(RESOURCE_CLAIM, name, "default"))
        # Given to nobody again, it is nobody's at once; who has it keeps it until it is done.
        await admin.merge(NAMES.node_device, STICK, {"spec": {"assignedNamespace": ""}})
        await until(
            admin, RESOURCE_SLICE, slice_name,
            lambda item: taints(item) == [(f"{GROUP}/unassigned", "")],
        )  # fmt: skip
        with pytest.raises(Refused):
            fence.require(STICK, namespace)
        api.delete([user(name, name) for name in outsiders] + list(outsiders.values()), "default")
