# SPDX-License-Identifier: Apache-2.0
"""Names that follow from the group, and the chart, which has them too."""

from __future__ import annotations

import re
from pathlib import Path

from usbdra.kube.custom import VERSION, Contract

TEMPLATES = Path(__file__).resolve().parents[3] / "deploy/helm/usbdra/templates"


def test_names_follow_from_the_group() -> None:
    contract = Contract("example.com")
    assert contract.node_device.path(name="x") == "/apis/example.com/v1alpha2/nodeusbdevices/x"
    assert contract.device.path("ns") == "/apis/example.com/v1alpha2/namespaces/ns/usbdevices"
    assert contract.driver == "usb.example.com"
    assert contract.device_class("vhci") == "usb-vhci.example.com"
    assert contract.key("assigned") == "example.com/assigned"


def test_the_chart_serves_this_version_and_these_kinds() -> None:
    defined = re.search(
        r'define "usbdra.version" -}}(\w+){{', (TEMPLATES / "_crds.tpl").read_text()
    )
    assert defined is not None
    assert defined[1] == VERSION
    contract = Contract("{{ .Values.group }}")
    for kind in (contract.node_device, contract.device, contract.attachment):
        text = (TEMPLATES / f"crd-{kind.plural}.yaml").read_text()
        assert f"kind: {kind.kind}\n" in text
        scope = "Namespaced" if kind.namespaced else "Cluster"
        assert f"scope: {scope}\n" in text
