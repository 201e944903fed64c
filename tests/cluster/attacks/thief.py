# SPDX-License-Identifier: Apache-2.0
"""Root on node b, with the tokens of the driver's pods there: what the API refuses it.

Owns a client with a stolen token. Every attempt returns what the API server said against it, and
fails the test when it was allowed.
"""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from kubernetes import client

from tests.bed.clusterbin import cluster_binary
from tests.cluster.api import ClusterApi
from tests.cluster.attacks.scene import Scene
from tests.cluster.certs import write_private
from tests.cluster.driver import DRIVER, GROUP, NAMESPACE
from usbdra.kube.signing import USAGES
from usbdra.pki.authority import new_key
from usbdra.pki.request import make_request
from usbdra.usbip.extension import ClaimRef

_SIGNER = f"{GROUP}/usbdra-node"


class Thief:
    """With the token of node b's pod of a component, as its containers have it."""

    def __init__(self, scene: Scene, component: str) -> None:
        self._bed = scene.bed
        pods = self._bed.api.core.list_namespaced_pod(
            NAMESPACE,
            label_selector=f"app.kubernetes.io/component={component}",
            field_selector="spec.nodeName=b",
        ).items
        (uid,) = (pod.metadata.uid for pod in pods if not pod.metadata.deletion_timestamp)
        volumes = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected"
        self._token = scene.b.sh(f"cat {volumes}/*/token")

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="usbdra-thief-")
        path = Path(self._folder.name, "kubeconfig")
        write_private(path, self._bed.plane.token_kubeconfig(self._token).encode())
        self._api = ClusterApi(path, (str(cluster_binary()), "kubectl"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._api.close()
        self._folder.cleanup()

    def empties(self, item: Any) -> str:
        """A slice says that its node has nothing."""
        body = self._plain(item)
        body["spec"]["devices"] = []
        return _refused(lambda: self._api.resource.replace_resource_slice(_name(item), body))

    def deletes(self, item: Any) -> str:
        """A slice is gone."""
        return _refused(lambda: self._api.resource.delete_resource_slice(_name(item)))

    def forges(self, item: Any) -> str:
        """Another slice of the same pool."""
        body = {**self._plain(item), "metadata": {"name": f"forged-{secrets.token_hex(3)}"}}
        return _refused(lambda: self._api.resource.create_resource_slice(body))

    def reports_on(self, claim: ClaimRef, device: str) -> str:
        """What became of a claim's device."""
        entry = {"driver": DRIVER, "pool": "usb-a", "device": device}
        patch = self._api.resource.patch_namespaced_resource_claim_status
        body = {"status": {"devices": [entry]}}
        return _refused(lambda: patch(claim.name, claim.namespace, body))

    def labels(self, node: str) -> str:
        """A node has no modules for us."""
        body = {"metadata": {"labels": {f"{GROUP}/usbip": None}}}
        return _refused(lambda: self._api.core.patch_node(node, body))

    def reads_secret(self, name: str) -> str:
        """The key of the CA."""
        return _refused(lambda: self._api.core.read_namespaced_secret(name, NAMESPACE))

    def assigns(self, device: str) -> str:
        """A device is for whom the thief likes."""
        patch = self._api.custom.patch_cluster_custom_object
        where = GROUP, "v1alpha1", "nodeusbdevices", device
        return _refused(lambda: patch(*where, {"spec": {"assignedNamespace": "default"}}))

    def asks_for_certificate(self, node: str, uid: str) -> str:
        """To be another node: what the controller says."""
        request = make_request(new_key(), node, uid, [])
        name = f"thief-{secrets.token_hex(3)}"
        spec = {"signerName": _SIGNER, "usages": USAGES}
        spec["request"] = base64.b64encode(request).decode()
        body = {"metadata": {"name": name}, "spec": spec}
        asked: Any = client.CertificatesV1Api(self._api.client)
        asked.create_certificate_signing_request(body)
        asked = client.CertificatesV1Api(self._bed.api.client)
        said = self._bed.api.wait(
            asked.list_certificate_signing_request,
            _verdict,
            f"verdict on {name}",
            field_selector=f"metadata.name={name}",
        )
        asked.delete_certificate_signing_request(name)
        return said

    def _plain(self, item: Any) -> dict[str, Any]:
        plain: dict[str, Any] = self._api.client.sanitize_for_serialization(item)
        return plain


def _verdict(requests: list[Any]) -> str | None:
    for one in requests:
        for condition in one.status.conditions or ():
            assert (condition.type, one.status.certificate) == ("Denied", None)
            return str(condition.message)
    return None


def _name(item: Any) -> str:
    return str(item.metadata.name)


def _refused(attempt: Callable[[], Any]) -> str:
    with pytest.raises(client.ApiException) as caught:
        attempt()
    assert caught.value.status == 403
    return str(json.loads(caught.value.body or "")["message"])
