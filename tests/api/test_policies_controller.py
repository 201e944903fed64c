# SPDX-License-Identifier: Apache-2.0
"""The claims that the controller makes, under the chart's own policies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.policies import policies, refusal
from tests.cluster.api import ClusterApi
from tests.unit.controller.make import CONTRACT, device
from usbdra.controller import templates
from usbdra.controller.published import Reach
from usbdra.kube.types import CLAIM_TEMPLATE, RESOURCE_CLAIM

OWNER = {"apiVersion": CONTRACT.device.api_version, "kind": "USBDevice", "name": "x", "uid": "u"}


@pytest.fixture(scope="module", autouse=True)
def in_force(api: ClusterApi) -> Iterator[None]:
    with policies(api, {"requireAssignment": "true"}):
        yield


@pytest.mark.parametrize("reach", list(Reach))
def test_claim_and_template_of_an_assigned_device_are_taken_in_its_namespace_alone(
    api: ClusterApi, reach: Reach, namespace: str
) -> None:
    spec = templates.claim_spec(device(reach=reach), namespace, CONTRACT)
    for kind, body in (
        (RESOURCE_CLAIM, templates.claim("x", spec, OWNER, CONTRACT)),
        (CLAIM_TEMPLATE, templates.template("x", spec, OWNER, CONTRACT)),
    ):
        item = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        assert refusal(api, item, namespace) is None
        assert "assigned" in (refusal(api, item, "default") or "")
