# SPDX-License-Identifier: Apache-2.0
"""A namespace of one test: what it makes in it, waits for, and is removed with.

Owns the namespace's life. Waits follow watches of the API; nothing sleeps.
"""

from __future__ import annotations

import secrets
from typing import Any

from tests.cluster.api import ClusterApi, Manifest

_GONE_SECONDS = 180.0
_EVENT_SECONDS = 90.0


class Space:
    """One namespace. Names of pods and claims in the methods are names in it."""

    def __init__(self, api: ClusterApi) -> None:
        self.api = api
        self.name = f"t-{secrets.token_hex(3)}"
        api.kubectl("create", "namespace", self.name)

    def apply(self, *manifests: Manifest) -> None:
        """Make objects here."""
        for manifest in manifests:
            self.api.apply(manifest, namespace=self.name)

    def delete(self, kind: str, name: str, *words: str) -> None:
        """Delete an object and wait until it is gone, unless `words` say otherwise."""
        self.api.kubectl("delete", kind, name, f"--namespace={self.name}", *words)

    def run(self, pod: str) -> Any:
        """Wait until the pod runs; its object."""
        return self.api.wait_pod(pod, namespace=self.name)

    def shell(self, pod: str, script: str, timeout: float = 120) -> str:
        """Run a shell script in the pod's first container; its output, trimmed.

        Raises:
            RuntimeError: with what it said, when it fails.
        """
        command = ("sh", "-c", script)
        return self.api.execute(pod, *command, namespace=self.name, timeout=timeout).strip()

    def started(self, labels: dict[str, str]) -> list[str]:
        """Wait until there are pods with these labels; their names."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found: list[str] = self.api.wait(
            self.api.core.list_namespaced_pod,
            lambda pods: [pod.metadata.name for pod in pods] or None,
            f"pods with {selector}",
            namespace=self.name,
            label_selector=selector,
        )
        return found

    def restarts(self, pod: str) -> int:
        """How often the pod's containers were started anew."""
        status = self.api.core.read_namespaced_pod(pod, self.name).status
        return sum(one.restart_count for one in status.container_statuses)

    def phase(self, pod: str) -> str:
        """The pod's phase now."""
        return str(self.api.core.read_namespaced_pod(pod, self.name).status.phase)

    def pending(self, pod: str) -> str:
        """Wait until the scheduler has found no place for the pod; what it says."""

        def refused(pods: list[Any]) -> str | None:
            for condition in pods[0].status.conditions or [] if pods else []:
                if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
                    return str(condition.message)
            return None

        return str(self._wait(self.api.core.list_namespaced_pod, refused, f"{pod} is pending", pod))

    def event(self, reason: str, about: str, text: str = "") -> str:
        """Wait for an event about an object; its message, which holds `text`."""

        def find(events: list[Any]) -> str | None:
            for event in events:
                said = event.message or ""
                if event.reason == reason and event.involved_object.name == about and text in said:
                    return str(said)
            return None

        return str(
            self.api.wait(
                self.api.core.list_namespaced_event,
                find,
                f"event {reason} about {about} with {text!r}",
                _EVENT_SECONDS,
                namespace=self.name,
            )
        )

    def claim(self, name: str) -> dict[str, Any]:
        """A claim as the API has it."""
        claim: dict[str, Any] = self.api.resource.api_client.sanitize_for_serialization(
            self.api.resource.read_namespaced_resource_claim(name, self.name)
        )
        return claim

    def claim_of(self, pod: str, entry: str) -> str:
        """Name of the claim that was made for a pod from a template or an extended resource."""
        status = self.api.core.read_namespaced_pod(pod, self.name).status
        if entry:
            found = [s for s in status.resource_claim_statuses or [] if s.name == entry]
            return str(found[0].resource_claim_name)
        return str(status.extended_resource_claim_status.resource_claim_name)

    def devices(self, claim: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until the driver has reported so many devices and all are Ready; status.devices."""

        def ready(claims: list[Any]) -> list[Any] | None:
            for item in claims:
                plain = self.api.client.sanitize_for_serialization(item)
                devices: list[Any] = plain.get("status", {}).get("devices", [])
                if len(devices) == count and all(map(_ready, devices)):
                    return devices
            return None

        lister = self.api.resource.list_namespaced_resource_claim
        found: list[dict[str, Any]] = self._wait(lister, ready, f"devices of {claim}", claim)
        return found

    def results(self, claim: str) -> dict[str, dict[str, Any]]:
        """What the scheduler has allocated: request (and subrequest) -> result."""
        allocation = self.claim(claim)["status"]["allocation"]
        return {r["request"]: r for r in allocation["devices"]["results"]}

    def remove(self) -> None:
        """Delete the namespace with all in it and wait until it is gone.

        Raises:
            TimeoutError: with what its conditions say is left.
        """
        self.api.kubectl("delete", "namespace", self.name, "--wait=false", "--ignore-not-found")
        # what does not end by itself would have half a minute for it
        here = f"--namespace={self.name}"
        self.api.kubectl("delete", "pods", "--all", here, "--grace-period=1", "--wait=false")
        self.api.wait(
            self.api.core.list_namespace,
            lambda spaces: None if spaces else True,
            f"namespace {self.name} is gone",
            _GONE_SECONDS,
            field_selector=f"metadata.name={self.name}",
        )

    def _wait(self, lister: Any, done: Any, what: str, name: str) -> Any:
        selector = f"metadata.name={name}"
        return self.api.wait(lister, done, what, namespace=self.name, field_selector=selector)


def _ready(device: dict[str, Any]) -> bool:
    conditions = device.get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
