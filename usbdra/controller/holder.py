# SPDX-License-Identifier: Apache-2.0
"""The claim and the pod that hold a device for a virtual machine or a running pod. Pure.

Owns their form and the reading of it. The pod runs beside the machine's own pod, so that the
scheduler counts device and port as it does for every pod, and does nothing but wait for its end.
The claim is the attachment's own: nobody shares a device with a machine, and no driver of the
node is bound to it. Names hold the attachment's UID: one of an earlier life is never met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from usbdra.controller.acts import Object
from usbdra.controller.templates import PARAMETERS, PARAMETERS_VERSION
from usbdra.kube.custom import MANAGED_BY, MANAGER, Contract
from usbdra.slices.limits import digest, shorten

WAIT = "trap 'exit 0' TERM INT; sleep infinity & wait"
ANYONE = 65532
"""The user that the pod runs as: none that a node has."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine runs now, or the pod that is to have a device, and how that gets there."""

    pod: str
    uid: str
    node: str
    socket: str = ""
    """VOLUME/PATH of the QMP socket in an emptyDir of a machine's pod."""
    bus: str = ""
    """The USB bus in the machine; empty for its first xHCI controller."""
    container: str = ""
    """The container that gets the device; empty for a machine."""
    container_id: str = ""
    """The runtime's identifier of that container while it runs."""

    @property
    def target(self) -> Mapping[str, str]:
        """What the agent of the node is told."""
        if not self.container:
            how = {"adapter": "qmp", "socket": self.socket, "bus": self.bus}
        else:
            how = {"adapter": "pod", "container": self.container, "containerID": self.container_id}
        return {"pod": self.pod, "uid": self.uid, **how}


def name(attachment: Mapping[str, Any]) -> str:
    """The name of claim and pod."""
    meta = attachment["metadata"]
    return f"usba-{shorten(str(meta['name']), 44)}-{digest(str(meta['uid']))}"


def claim(attachment: Mapping[str, Any], template: Mapping[str, Any], names: Contract) -> Object:
    """The ResourceClaim, after the template that the device's assignment made."""
    spec = template["spec"]["spec"]
    meta = _metadata(attachment, names)
    # Not the template's own key: claims with that one are the device's, and go with it.
    meta["annotations"] = {names.key("template-hash"): _hash(template, names.hash_key)}
    meta["labels"][names.device_key] = attachment["spec"]["device"]
    if "pod" in attachment["spec"]:  # a container has the node's drivers and nodes
        return {"metadata": meta, "spec": spec}
    # In the order of names: a patch of the claim's status writes opaque parameters so, and the
    # API refuses it as a change of the allocation when they were created in another (1.37).
    parameters = {
        "apiVersion": f"{names.driver}/{PARAMETERS_VERSION}",
        "childNodes": [],
        "driver": "none",
        "kind": PARAMETERS,
    }
    alone = {"requests": ["usb"], "opaque": {"driver": names.driver, "parameters": parameters}}
    devices = {**spec["devices"], "config": [*spec["devices"].get("config", ()), alone]}
    return {"metadata": meta, "spec": {**spec, "devices": devices}}


def is_current(found: Mapping[str, Any], template: Mapping[str, Any], names: Contract) -> bool:
    """The claim asks for the device where it is now."""
    made_of = _hash(found, names.key("template-hash"))
    return bool(made_of == _hash(template, names.hash_key))


def pod(
    attachment: Mapping[str, Any], claim_name: str, place: Place, image: Object, names: Contract
) -> Object:
    """The holder. image: `image`, `imagePullPolicy`; `imagePullSecrets` are the node's affair."""
    meta = _metadata(attachment, names)
    meta["annotations"] = {names.key("target"): place.uid}
    here = {"key": "metadata.name", "operator": "In", "values": [place.node]}
    container = {
        "name": "hold",
        **image,
        "command": ["sh", "-c", WAIT],
        "resources": {
            "claims": [{"name": "usb"}],
            "requests": {"cpu": "1m", "memory": "4Mi"},
            "limits": {"memory": "32Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [here]}]
                }
            }
        },
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "resourceClaims": [{"name": "usb", "resourceClaimName": claim_name}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": ANYONE,
            "runAsGroup": ANYONE,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 5,
        # The machine may be where other pods may not.
        "tolerations": [{"operator": "Exists"}],
    }
    return {"metadata": meta, "spec": spec}


def target(found: Mapping[str, Any], names: Contract) -> str:
    """The UID of the pod that a holder was made for.

    Users can write it, so it is only ever compared with pods of the attachment's machine.
    """
    return str((found["metadata"].get("annotations") or {}).get(names.key("target"), ""))


def node(found: Mapping[str, Any]) -> str:
    """Where a holder is; empty until it is scheduled."""
    return str((found.get("spec") or {}).get("nodeName") or "")


def _metadata(attachment: Mapping[str, Any], names: Contract) -> Object:
    kind, meta = names.attachment, attachment["metadata"]
    owner: Object = {"apiVersion": kind.api_version, "kind": kind.kind}
    owner |= {"name": meta["name"], "uid": meta["uid"], "controller": True}
    labels = {MANAGED_BY: MANAGER, names.attachment_key: meta["uid"]}
    return {"name": name(attachment), "labels": labels, "ownerReferences": [owner]}


def _hash(item: Mapping[str, Any], key: str) -> Any:
    return (item["metadata"].get("annotations") or {}).get(key)
