# SPDX-License-Identifier: Apache-2.0
"""Names of the API kinds we use and of the plain objects that travel.

Objects are the JSON of the API as dicts: the generated model classes cost tens of megabytes and
drop fields they do not know, which is what dropped-field detection must be able to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""One API object: apiVersion, kind, metadata, spec, status ... as decoded JSON."""
Keep: TypeAlias = Callable[[Object], Object]
"""What is kept of an object by who does not need all of it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An API kind: group ("" is core), version, Kind, plural and whether it has a namespace."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object or of its subresource.

        Raises ValueError for an object of a namespaced kind without its namespace.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(parts)


NODE = Kind("", "v1", "Node", "nodes", False)
POD = Kind("", "v1", "Pod", "pods", True)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True)
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", True)
EVENT = Kind("events.k8s.io", "v1", "Event", "events", True)
RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False)
RESOURCE_CLAIM = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True)
CLAIM_TEMPLATE = Kind(
    "resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", True
)
DEVICE_TAINT_RULE = Kind("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", False)
DEVICE_CLASS = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False)
SECRET = Kind("", "v1", "Secret", "secrets", True)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True)
CSR = Kind(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    False,
)
