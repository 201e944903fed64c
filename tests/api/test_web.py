# SPDX-License-Identifier: Apache-2.0
"""The web page with real tokens, rights and objects, and in a real browser."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.api.accounts import Accounts
from tests.api.browser import Browser, browser, program
from tests.api.chart import NAMESPACE, installed
from tests.api.conftest import MakeNode
from tests.api.devices import PublishingNode, has, until
from tests.api.stage import SPACE, Stage
from tests.api.test_controller_devices import CONTRACT, NUSB, STICK, admin, controller, served
from tests.api.test_docs import lab
from tests.cluster.api import ClusterApi
from tests.cluster.driver import ROOT
from tests.unit.slices.samples import offer
from usbdra.controller.web.options import WebOptions
from usbdra.controller.web.server import WebServer
from usbdra.kube.client import KubeClient
from usbdra.slices.build import Visibility
from usbdra.types import BusId, Speed, UsbInterface

__all__ = ["admin", "lab"]  # fixtures

VALUES = {"controller.web.enabled": "true"}
SCANNER = "usb-04a9-190a-port-1-2"
SECONDS = 240.0
PICTURE = ROOT / "docs/web.png"
ROLES = ("usbdra-controller", "usbdra-controller-web", "usbdra-assigner")


@pytest.fixture(scope="module", autouse=True)
def chart(api: ClusterApi) -> Iterator[None]:
    """Kinds, classes, the controller's account with the page's rights, the role to assign."""

    def wanted(item: dict[str, Any]) -> bool:
        kinds = ("CustomResourceDefinition", "DeviceClass")
        return item["kind"] in kinds or item["metadata"]["name"] in ROLES

    with installed(api, VALUES, wanted):
        for kind in (NUSB, CONTRACT.device, CONTRACT.attachment):
            served(api, kind.plural)
        yield


@dataclass
class Site:
    """The page, and a way to the tokens of people."""

    api: ClusterApi
    accounts: Accounts
    namespace: str
    url: str

    def token(self, name: str, *roles: str) -> str:
        """A new account's token, with these ClusterRoles everywhere."""
        self.api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
                       self.namespace)  # fmt: skip
        for role in roles:
            self.api.kubectl(
                "create", "clusterrolebinding", f"{self.namespace}-{name}-{role}",
                f"--clusterrole={role}", f"--serviceaccount={self.namespace}:{name}",
            )  # fmt: skip
        return self.accounts.token(self.namespace, name)


@pytest_asyncio.fixture
async def site(api: ClusterApi, accounts: Accounts, namespace: str) -> AsyncIterator[Site]:
    client = await accounts.client(NAMESPACE, "usbdra-controller")
    server = WebServer(client, CONTRACT, WebOptions(port=0))
    await server.start()
    yield Site(api, accounts, namespace, f"http://127.0.0.1:{server.port}")
    await server.stop()
    found = api.kubectl("get", "clusterrolebinding", "-o", "name").split()
    own = [name for name in found if f"/{namespace}-" in name]
    if own:
        api.kubectl("delete", *own)


async def ask(site: Site, token: str, namespace: str) -> tuple[int, Any]:
    """Assign the stick; (status, answer)."""
    body, headers = {"device": STICK, "namespace": namespace}, {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session:
        url = f"{site.url}/api/assign"
        async with session.post(url, json=body, headers=headers) as found:
            return found.status, await found.json()


async def first_rows(site: Site, token: str) -> tuple[int, dict[str, Any]]:
    """(status, all rows by section) as a viewer gets them; or the error."""
    headers = {"Authorization": f"Bearer {token}"}
    rows: dict[str, Any] = {}
    url = f"{site.url}/api/stream"
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers) as found,
    ):
        if found.status != 200:
            return found.status, await found.json()
        event = ""
        async for line in found.content:
            name, _, value = line.decode().strip().partition(": ")
            event = value if name == "event" else event
            if event == "all":
                break
            if name == "data" and event == "rows":
                for section, part in json.loads(value).items():
                    rows.setdefault(section, {}).update(part)
        return found.status, rows


async def test_the_cluster_says_who_sees_and_who_assigns(site: Site, admin: KubeClient) -> None:
    stick = {"apiVersion": NUSB.api_version, "kind": NUSB.kind, "metadata": {"name": STICK}}
    await admin.create(NUSB, stick)
    assigner, viewer = site.token("assigner", "usbdra-assigner"), site.token("viewer", "view")
    nobody = site.token("nobody")
    assert (await ask(site, "made-up", "lab"))[0] == 401
    assert (await first_rows(site, "made-up"))[0] == 401
    for token in (viewer, nobody):
        status, said = await ask(site, token, "lab")
        assert (status, said["error"]["reason"]) == (403, "Forbidden")
        assert f"may not patch {NUSB.plural}" in said["error"]["message"]
        assert (await first_rows(site, token))[0] == 403
    assert (await admin.get(NUSB, STICK))["spec"]["assignedNamespace"] == ""
    assert await ask(site, assigner, site.namespace) == (
        200, {"device": STICK, "namespace": site.namespace},
    )  # fmt: skip
    assert (await admin.get(NUSB, STICK))["spec"]["assignedNamespace"] == site.namespace
    status, rows = await first_rows(site, assigner)
    assert (status, list(rows)) == (200, ["devices"])
    assert rows["devices"][STICK]["namespace"] == site.namespace
    both = site.token("both", "usbdra-assigner", "view")
    status, rows = await first_rows(site, both)
    assert site.namespace in rows["namespaces"]
    site.api.kubectl("delete", "nusb", STICK)
    status, said = await ask(site, assigner, "lab")
    assert (status, said["error"]["reason"]) == (404, "ApiNotFound")


async def test_it_is_patched_by_the_user_and_not_by_the_controller(
    site: Site, admin: KubeClient
) -> None:
    """An admission policy that knows who may assign what holds for the page as well."""
    stick = {"apiVersion": NUSB.api_version, "kind": NUSB.kind, "metadata": {"name": STICK}}
    await admin.create(NUSB, stick)
    name = f"{site.namespace}-only"
    who = f"system:serviceaccount:{site.namespace}:assigner"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [NUSB.group], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": [NUSB.plural],
            }]},
            "validations": [{"expression": f"request.userInfo.username != '{who}'",
                             "message": "not by this one"}],
        },
    }  # fmt: skip
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }  # fmt: skip
    token, other = site.token("assigner", "usbdra-assigner"), site.token("other", "usbdra-assigner")
    site.api.apply([policy, binding])
    try:
        async with asyncio.timeout(60):
            while (answer := await ask(site, token, "lab"))[0] == 200:  # not in force yet
                await asyncio.sleep(0.2)
        assert answer[0] in (403, 422)
        assert "not by this one" in answer[1]["error"]["message"]
        assert (await ask(site, other, "office"))[0] == 200
    finally:
        site.api.delete([policy, binding])


@asynccontextmanager
async def busy_cluster(
    api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode, folder: Path
) -> AsyncIterator[None]:
    """A controller, two nodes, a stick that a pod on the other node uses, a hub full of devices."""
    stage = Stage(api, admin, make_node, folder)
    async with controller(accounts):
        await stage.assigned()
        await stage.used()
        camera = UsbInterface(0, 0x0E, 0x01, 0x00, "uvcvideo")
        await PublishingNode(admin, "node-a", Visibility.CLUSTER).publish(
            offer(),
            offer(SCANNER, busid=BusId("1-1.2"), product="LiDE 400", manufacturer="Canon",
                  vendor_id="04a9", product_id="190a", serial=""),
            offer("usb-046d-0825-a", busid=BusId("2-3"), product="HD Pro Webcam C920",
                  manufacturer="Logitech", vendor_id="046d", product_id="082d", serial="A",
                  speed=Speed.SUPER, interfaces=(camera,)),
        )  # fmt: skip
        await PublishingNode(admin, "node-b", Visibility.CLUSTER).publish(
            offer("usb-1050-0407-7", busid=BusId("1-4"), product="YubiKey 5", serial="7",
                  manufacturer="Yubico", vendor_id="1050", product_id="0407")
        )  # fmt: skip
        for name in (SCANNER, "usb-046d-0825-a", "usb-1050-0407-7"):
            await until(admin, NUSB, name, has("Ready", "Ready"))
        await until(admin, NUSB, STICK, has("Attached", "AttachedToPod"))
        yield


@pytest.mark.skipif(
    program() is None and "CI" not in os.environ, reason="no Chromium: tests/host_packages.py web"
)
async def test_a_device_is_assigned_by_a_click(
    site: Site, api: ClusterApi, accounts: Accounts, admin: KubeClient, make_node: MakeNode,
    lab: None, tmp_path: Path,
) -> None:  # fmt: skip
    token = site.token("anna", "usbdra-assigner", "cluster-admin")
    folder = tmp_path / "stage"
    folder.mkdir()
    async with (
        asyncio.timeout(SECONDS),
        busy_cluster(api, accounts, admin, make_node, folder),
        browser(tmp_path / "profile") as tab,
    ):
        await tab.look(1200, 1000)
        await tab.call("Page.navigate", url=f"{site.url}/")
        await tab.until("document.activeElement?.id === 'token'")
        await tab.type("wrong")
        await tab.press("Enter", 13)
        await tab.until("document.getElementById('refused').textContent.includes('token')")
        await tab.type(token)
        await tab.press("Enter", 13)
        await tab.until("document.querySelectorAll('#devices tr').length === 4")
        await shows_the_cluster(tab)
        await assigns(tab, admin)
        await is_usable_everywhere(tab)
        assert [line for line in tab.console if "401" not in line] == []
        await admin.merge(NUSB, SCANNER, {"spec": {"assignedNamespace": SPACE}})
        await tab.until(f"document.getElementById('device-{SCANNER}').innerText.includes('◐')")
        await tab.look(1200, 1060)
        await tab.ask("document.activeElement.blur(), scrollTo(0, 0)")
        await tab.until("!document.getElementById('said').textContent && scrollY === 0")
        image = await tab.screenshot()
        assert image.startswith(b"\x89PNG")
        if os.environ.get("USBDRA_WRITE_DOCS"):
            PICTURE.write_bytes(image)


async def shows_the_cluster(tab: Browser) -> None:
    """Picture, devices, links and users, as they are."""
    assert await tab.ask("document.getElementById('user').textContent.endsWith(':anna')")
    stick = await tab.ask(f"document.getElementById('device-{STICK}').innerText")
    for word in ("DataTraveler 3.0", "node-a", "In use", SPACE, "reader", "node-b"):
        assert word in stick, stick
    nodes = "[...document.querySelectorAll('.node')].map(n => n.querySelector('svg').textContent)"
    first, second = await tab.ask(nodes)
    for word in ("Bus 1", "1: hub", "2: Canon LiDE 400", "4: Kingston", "Bus 2", "3: Logitech"):
        assert word in first, first
    assert "Yubico" in second
    assert "1 of 8 used" in second, "the port that the stick's claim has on node-b"
    link = await tab.ask("document.querySelector('#links tr').innerText")
    for word in ("node-a", "node-b", f"{SPACE}/{STICK}", "31.4 MB/s", "512 kB/s", "1.2 ms"):
        assert word in link, link


async def assigns(tab: Browser, admin: KubeClient) -> None:
    """By the mouse, and taken back by the keyboard."""
    await tab.click(f"[id='device-{SCANNER}'] button")
    await tab.until("document.getElementById('assign').open")
    assert SPACE in await tab.ask("[...document.querySelectorAll('option')].map(o => o.value)")
    await tab.type(SPACE)
    await tab.click("#assign-yes")
    await until(admin, NUSB, SCANNER, has("Assigned", "Assigned"))
    row = f"document.getElementById('device-{SCANNER}').innerText"
    await tab.until(f"{row}.includes('Assigned') && {row}.includes('{SPACE}')")
    assert not await tab.ask("document.getElementById('assign').open")
    await tab.ask(f"document.querySelector('[id=\"device-{SCANNER}\"] button').focus()")
    await tab.press("Enter", 13)
    await tab.until("document.getElementById('assign').open")
    for _ in range(2):
        await tab.press("Tab", 9)
    assert await tab.ask("document.activeElement.id") == "assign-none"
    await tab.press("Enter", 13)
    await until(admin, NUSB, SCANNER, has("Assigned", "Available"))
    await tab.until(f"{row}.includes('Free')")
    focus = "document.activeElement.closest('tr')?.id"
    assert await tab.ask(focus) == f"device-{SCANNER}", "the focus stays where it was"


async def is_usable_everywhere(tab: Browser) -> None:
    """Nothing is cut off at a phone's width; dark where that is liked."""
    light = await tab.ask("getComputedStyle(document.body).backgroundColor")
    await tab.look(360, 740, dark=True)
    assert await tab.ask("getComputedStyle(document.body).backgroundColor") != light
    assert await tab.ask("document.documentElement.scrollWidth") <= 360
    buttons = "document.querySelectorAll('#devices button').length"
    assert await tab.ask(buttons) == 4
