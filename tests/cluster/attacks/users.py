# SPDX-License-Identifier: Apache-2.0
"""A user of the other namespace, who may make claims and pods there, and no more.

Owns what is asked and how it is refused at once; what becomes of what was taken is the tests'.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.api import manifest_text
from tests.cluster.attacks.scene import BY_HAND, Scene
from tests.cluster.claims import VHCI, Object, claim, device, link, parameters, serial
from tests.cluster.driver import DRIVER, GROUP
from tests.cluster.manifests import pod

STRAY = "stray.example.com"
"""A DeviceClass that an administrator made and the chart's policies do not know."""
_RESOURCES = "resourceclaims.resource.k8s.io,resourceclaimtemplates.resource.k8s.io,pods"


class User:
    """The other namespace's own service account."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.space = scene.other
        self._here = f"--namespace={self.space.name}"
        self._name = f"system:serviceaccount:{self.space.name}:default"
        rights = ["--verb=create", f"--resource={_RESOURCES}"]
        who = ["--role=user", f"--serviceaccount={self.space.name}:default"]
        for words in (["role", "user", *rights], ["rolebinding", "user", *who]):
            scene.bed.api.kubectl("create", *words, self._here)

    def create(self, *manifests: Object) -> None:
        """Make objects. Raises RuntimeError with what the API server said."""
        for one in manifests:
            one["metadata"]["labels"] = BY_HAND
            words = ["create", self._here, f"--as={self._name}", "-f", "-"]
            self._scene.bed.api.kubectl(*words, text=manifest_text(one))

    def refusal(self, manifest: Object) -> str:
        """What the API server says against an object. Raises AssertionError when it takes it."""
        try:
            self.create(manifest)
        except RuntimeError as error:
            return str(error)
        raise AssertionError(f"{manifest['metadata']['name']} was taken")


def by_serial(scene: Scene, **more: Any) -> Object:
    """A request for the victim by CEL."""
    return {"name": "usb", "exactly": device(serial(scene.stick.serial), **more)}


def by_name(scene: Scene) -> Object:
    """A request for the victim by its exact name."""
    return {
        "name": "usb",
        "exactly": device(f'device.attributes["{DRIVER}"].name == "{scene.device}"'),
    }


def copied(scene: Scene, name: str, cls: str = VHCI) -> Object:
    """The opaque config of the owner's claim, on a port of the attacker's node."""
    port = {"name": "usb", "exactly": {"deviceClassName": cls}}
    target = {"name": scene.device, "node": "a"}
    return claim(name, [port], config=[parameters(["usb"], device=target)])


def tolerant(scene: Scene, name: str, toleration: Object, cls: str = "") -> Object:
    """A request that tolerates more than its own namespace's devices."""
    asked = by_serial(scene, tolerations=[toleration])
    if cls:
        asked["exactly"]["deviceClassName"] = cls
    return claim(name, [asked])


def tolerations(scene: Scene) -> list[Object]:
    """Those that reach the victim."""
    return [
        {"operator": "Exists"},
        {"key": f"{GROUP}/assigned", "operator": "Exists"},
        {"key": f"{GROUP}/assigned", "operator": "Equal", "value": scene.owner.name},
    ]


def ports_alone(scene: Scene) -> list[Object]:
    """Claims that would take ports until none is left."""
    many = {"name": "many", "exactly": {"deviceClassName": VHCI, "count": 8}}
    every = {"name": "all", "exactly": {"deviceClassName": VHCI, "allocationMode": "All"}}
    return [
        claim("port", [{"name": "port", "exactly": {"deviceClassName": VHCI}}]),
        claim("many", [by_serial(scene), many]),
        claim("every", [by_serial(scene), every]),
        claim("two", [by_serial(scene), link("one"), link("two")]),
    ]


def extended(name: str, cls: str) -> Object:
    """A pod that asks for a device of a class as an extended resource (KEP-5004)."""
    made = pod(name)
    amount = {f"deviceclass.resource.kubernetes.io/{cls}": "1"}
    made["spec"]["containers"][0]["resources"] = {"limits": amount, "requests": amount}
    return made


def stray_class() -> Object:
    """The class of this name, which selects our driver's devices."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": STRAY},
        "spec": {"selectors": [selector]},
    }
