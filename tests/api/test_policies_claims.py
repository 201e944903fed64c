# SPDX-License-Identifier: Apache-2.0
"""What claims may tolerate and ask for: the real API server's verdicts under our policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.accounts import Accounts
from tests.api.chart import GROUP, Manifest
from tests.api.policies import (
    DIRECT,
    USB,
    VHCI,
    claim,
    link,
    named,
    policies,
    refusal,
    template,
    usb,
)
from tests.cluster.api import ClusterApi
from tests.cluster.manifests import pod
from usbdra.kube import errors
from usbdra.kube.types import CLAIM_TEMPLATE, RESOURCE_CLAIM

EXAMPLES = Path(__file__).parents[2] / "deploy/examples"
OTHER = "gpu.example.com"
CUSTOM = "scanners.example.com"


@pytest.fixture(scope="module", autouse=True)
def in_force(api: ClusterApi) -> Iterator[None]:
    values = {"requireAssignment": "true", "policies.deviceClasses": "{" + CUSTOM + "}"}
    with policies(api, values):
        yield


def both(*requests: Manifest, config: list[Manifest] | None = None) -> list[Manifest]:
    return [claim("one", *requests, config=config), template("one", *requests, config=config)]


def test_a_claim_that_asks_for_nothing_is_nobodys_matter(api: ClusterApi) -> None:
    """Its requests are null where the server has decoded it."""
    for item in both():
        devices = item["spec"].get("spec", item["spec"])["devices"]
        for nothing in ("[]", "null"):
            devices["requests"] = json.loads(nothing)
            assert refusal(api, item) is None
        del devices["requests"]
        assert refusal(api, item) is None


def tolerating(*tolerations: Any, cls: str = USB) -> Manifest:
    return {"name": "usb", "exactly": {"deviceClassName": cls, "tolerations": list(tolerations)}}


def choosing(*tolerations: Any, cls: str = USB) -> Manifest:
    one = {"name": "one", "deviceClassName": cls, "tolerations": list(tolerations)}
    return {"name": "usb", "firstAvailable": [one]}


ASSIGNED, UNASSIGNED = f"{GROUP}/assigned", f"{GROUP}/unassigned"
OWN = {"key": ASSIGNED, "operator": "Equal", "value": "default", "effect": "NoSchedule"}


@pytest.mark.parametrize("form", [tolerating, choosing])
@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": ASSIGNED, "operator": "Exists"},
        {"key": ASSIGNED, "operator": "Equal", "value": "other"},
        {"key": ASSIGNED, "value": "other"},
        {"key": ASSIGNED, "operator": "Equal"},
        {"key": UNASSIGNED, "operator": "Exists"},
        {"key": UNASSIGNED, "operator": "Equal", "value": ""},
    ],
    ids=str,
)
def test_tolerations_that_reach_other_namespaces_are_refused(
    api: ClusterApi, form: Any, toleration: dict[str, str]
) -> None:
    for item in both(form(OWN, toleration)):
        text = refusal(api, item)
        assert text is not None
        assert f"value: default}}, and {UNASSIGNED} cannot be tolerated" in text


@pytest.mark.parametrize("form", [tolerating, choosing])
def test_the_own_namespace_and_other_keys_are_tolerated(api: ClusterApi, form: Any) -> None:
    others = {"key": "example.com/broken", "operator": "Exists"}
    for item in both(form(OWN, {"key": ASSIGNED, "value": "default"}, others)):
        assert refusal(api, item) is None


def test_wildcards_for_other_drivers_are_left_alone(api: ClusterApi) -> None:
    wildcard = {"operator": "Exists"}
    for form in (tolerating, choosing):
        for item in both(form(wildcard, cls=OTHER)):
            assert refusal(api, item) is None
        for cls in (CUSTOM, DIRECT, VHCI):
            for item in both(form(wildcard, cls=cls)):
                assert "are not tolerated from here" in str(refusal(api, item))


def test_a_namespaces_name_counts_where_the_object_is(api: ClusterApi, namespace: str) -> None:
    own = {**OWN, "value": namespace}
    for item in both(tolerating(own)):
        assert refusal(api, item, namespace) is None
        assert refusal(api, item, "default") is not None


@pytest.mark.parametrize(
    "requests",
    [
        [link()],
        [{"name": "a", "exactly": {"deviceClassName": VHCI}}],
        [{"name": "a", "exactly": {"deviceClassName": DIRECT}}],
        [link("a"), link("b"), usb()],
        [link(), {"name": "gpu", "exactly": {"deviceClassName": OTHER}}],
        [link(), {"name": "x", "firstAvailable": [
            {"name": "usb", "deviceClassName": USB}, {"name": "gpu", "deviceClassName": OTHER}]}],
    ],
    ids=["link", "port", "direct", "two links", "other driver", "maybe a device"],
)  # fmt: skip
def test_links_without_a_device_are_refused(api: ClusterApi, requests: list[Manifest]) -> None:
    for item in both(*requests):
        assert "needs a request for a USB device of its own" in str(refusal(api, item))


def test_many_ports_in_one_request_are_refused(api: ClusterApi) -> None:
    for changes in ({"count": 8}, {"allocationMode": "All"}):
        port = {"name": "a", "exactly": {"deviceClassName": VHCI, **changes}}
        for item in both(usb(), port):
            assert "a request for a link class is for one link" in str(refusal(api, item))
    for item in both(usb(), link(count=2)):
        assert "a request for a link class is for one link" in str(refusal(api, item))


def test_a_device_alone_with_link_or_of_a_class_of_ones_own_is_taken(api: ClusterApi) -> None:
    scanner = {"name": "scanner", "exactly": {"deviceClassName": CUSTOM}}
    for requests in ([usb()], [usb(), link()], [usb("a"), usb("b"), link("c"), link("d")],
                     [scanner, link()], [usb(count=2)]):  # fmt: skip
        for item in both(*requests):
            assert refusal(api, item) is None


def test_every_example_is_taken(api: ClusterApi) -> None:
    seen = 0
    for path in sorted(EXAMPLES.glob("*/manifest.yaml")):
        for item in yaml.safe_load_all(path.read_text()):
            if item["kind"] in ("ResourceClaim", "ResourceClaimTemplate"):
                seen += 1
                assert refusal(api, item) is None, path
    assert seen >= 8


def node_form(namespace: str) -> Manifest:
    """The device itself on its node, or a port elsewhere and parameters that name it."""
    fence = {**OWN, "value": namespace}
    local = {"name": "local", "deviceClassName": USB, "tolerations": [fence]}
    remote = {"name": "remote", "deviceClassName": VHCI}
    return {"name": "usb", "firstAvailable": [local, remote]}


async def test_who_may_name_a_device_where_devices_are_assigned(
    api: ClusterApi, accounts: Accounts, namespace: str
) -> None:
    """A copied opaque config: refused for those who cannot assign devices."""
    api.kubectl(
        "-n", namespace, "create", "rolebinding", "claims", "--clusterrole=claims",
        f"--serviceaccount={namespace}:default",
    )  # fmt: skip
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "claims"},
        "rules": [
            {
                "apiGroups": ["resource.k8s.io"],
                "resources": ["resourceclaims", "resourceclaimtemplates"],
                "verbs": ["create"],
            }
        ],
    }
    api.apply(role)
    user = await accounts.client(namespace, "default")
    admin = await accounts.admin()
    form = node_form(namespace)
    for kind, item in zip(
        (RESOURCE_CLAIM, CLAIM_TEMPLATE), both(form, config=[named()]), strict=True
    ):
        with pytest.raises(errors.ApiForbidden, match="is made by usbdra controller alone"):
            await user.create(kind, item, namespace)
        await admin.create(kind, item, namespace)
    # What an administrator's template says, Kubernetes itself may make a claim of.
    user_pod = pod("user", resourceClaims=[{"name": "usb", "resourceClaimTemplateName": "one"}])
    user_pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "usb"}]}
    api.apply(user_pod, namespace)
    made = api.wait(
        api.resource.list_namespaced_resource_claim,
        lambda claims: next((c for c in claims if c.metadata.generate_name), None),
        "a claim of the template",
        namespace=namespace,
    )
    assert made.metadata.owner_references[0].name == "user"
    api.delete(role)


def test_a_named_device_has_one_link(api: ClusterApi) -> None:
    for item in both(node_form("default"), link("more"), config=[named()]):
        assert "needs a request for a USB device of its own" in str(refusal(api, item))


def test_a_class_that_reaches_our_devices_is_pointed_out(api: ClusterApi) -> None:
    def warning(name: str, *expressions: str) -> bool:
        item = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": one}} for one in expressions]},
        }
        said = refusal(api, item, warnings=True)
        return "add its name to policies.deviceClasses" in str(said)

    ours = f'device.driver == "usb.{GROUP}"'
    assert warning("stray.example.com", ours)
    assert warning("all.example.com")
    assert not warning(CUSTOM, ours)
    assert not warning("gpus.example.com", 'device.driver == "gpu.example.com"')
