# SPDX-License-Identifier: Apache-2.0
"""Handlers made from service descriptors."""

from __future__ import annotations

import pytest

from usbdra._pb import dra_health_v1_pb2 as health
from usbdra._pb import dra_health_v1alpha1_pb2 as health_alpha
from usbdra._pb import dra_v1_pb2, dra_v1beta1_pb2, plugin_registration_v1_pb2
from usbdra.plugin import health as health_module
from usbdra.plugin import service, v1beta1
from usbdra.plugin.rpc import handlers


async def nothing(request: object, context: object) -> None:
    """A method that is never called."""


def test_methods_must_be_exactly_the_services() -> None:
    with pytest.raises(ValueError, match=r"pluginregistration\.Registration has methods"):
        handlers(plugin_registration_v1_pb2.DESCRIPTOR, "Registration", {"GetInfo": nothing})


@pytest.mark.parametrize(
    ("file", "name", "package"),
    [
        (dra_v1_pb2, service.NAME, "k8s.io.kubelet.pkg.apis.dra.v1"),
        (dra_v1beta1_pb2, v1beta1.NAME, "k8s.io.kubelet.pkg.apis.dra.v1beta1"),
        (health, health_module.V1, "v1"),
        (health_alpha, health_module.V1ALPHA1, "v1alpha1"),
    ],
)
def test_packages_and_services_keep_the_kubelets_names(
    file: object, name: str, package: str
) -> None:
    descriptor = file.DESCRIPTOR  # type: ignore[attr-defined]
    version, _, short = name.partition(".")
    assert descriptor.package == package
    assert package.rpartition(".")[2] == version
    assert list(descriptor.services_by_name) == [short]
    assert descriptor.name.startswith("usbdra/_pb/"), "unique in the pool of the process"
