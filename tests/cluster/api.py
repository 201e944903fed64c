# SPDX-License-Identifier: Apache-2.0
"""What tests say to the cluster's API: kubectl, apply, and waits that follow watch events.

Owns the clients, not the cluster: it works with any kubeconfig. Objects are typed as Any: the
client's generated models declare every field optional, which the API server does not.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml
from kubernetes import client, config, watch

Result = TypeVar("Result")
Manifest = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]
# How long one watch request lasts before it is made anew: bounds a connection that died silently.
_WATCH_SECONDS = 20
_RETRY_SECONDS = 0.2
# Limits end a test that is lost; an emulated node on a busy machine may need this long.
_POD_SECONDS = 150.0
_CALL_SECONDS = 120.0
_GONE = 410


class ClusterApi:
    """kubectl and the typed Python clients over one kubeconfig.

    Args:
        kubeconfig: path of an administrator's kubeconfig.
        kubectl: the command that starts kubectl, for instance (binary, "kubectl").
    """

    def __init__(self, kubeconfig: Path, kubectl: Sequence[str]) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = [*kubectl, f"--kubeconfig={kubeconfig}"]
        settings = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=settings)
        self.client = client.ApiClient(settings)
        self.core: Any = client.CoreV1Api(self.client)
        self.resource: Any = client.ResourceV1Api(self.client)
        self.custom: Any = client.CustomObjectsApi(self.client)
        self.authentication: Any = client.AuthenticationV1Api(self.client)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def kubectl(
        self, *arguments: str, text: str | None = None, timeout: float = _CALL_SECONDS
    ) -> str:
        """Run kubectl with `text` on its input and return its output.

        Raises:
            RuntimeError: it failed; the message holds the command and what it said.
        """
        done = subprocess.run(
            [*self._kubectl, *arguments],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def stream(self, *arguments: str) -> subprocess.Popen[str]:
        """Start kubectl for what it goes on saying (`logs --follow`); the caller ends it."""
        return subprocess.Popen(
            [*self._kubectl, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def apply(self, manifest: Manifest, namespace: str = "default") -> None:
        """Server-side apply of YAML text, of a file or folder, or of one or more objects."""
        arguments = ["apply", "--server-side", "--force-conflicts", f"--namespace={namespace}"]
        if isinstance(manifest, Path):
            self.kubectl(*arguments, "-f", str(manifest))
        else:
            self.kubectl(*arguments, "-f", "-", text=manifest_text(manifest))

    def delete(
        self, manifest: Manifest, namespace: str = "default", timeout: float = _CALL_SECONDS
    ) -> None:
        """Delete what `apply` made and wait until it is gone; what is not there is no error."""
        arguments = ["delete", "--ignore-not-found", f"--namespace={namespace}"]
        if isinstance(manifest, Path):
            self.kubectl(*arguments, "-f", str(manifest), timeout=timeout)
        else:
            self.kubectl(*arguments, "-f", "-", text=manifest_text(manifest), timeout=timeout)

    def wait(
        self,
        lister: Callable[..., Any],
        done: Callable[[list[Any]], Result | None],
        what: str,
        timeout: float = _CALL_SECONDS,
        **selection: Any,
    ) -> Result:
        """Follow a list until `done` says so; no polling, a watch tells of each change.

        Args:
            lister: a list method of a typed client, such as `core.list_namespaced_pod`.
            done: is given the objects as they are; whatever is not None ends the wait.
            what: named in the error.
            timeout: seconds.
            selection: arguments of `lister` (namespace, field_selector, ...).

        Raises:
            TimeoutError: with `what` and the objects last seen.
        """
        deadline = time.monotonic() + timeout
        objects: dict[str, Any] = {}
        while True:
            try:
                listed = lister(**selection)
            except urllib3.exceptions.HTTPError:
                # A test may have stopped the API server: it is asked again until the deadline.
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
                continue
            objects = {item.metadata.uid: item for item in listed.items}
            result = done(list(objects.values()))
            if result is None:
                version = listed.metadata.resource_version
                kind = _item_type(listed)
                result = _follow(lister, kind, done, objects, version, deadline, selection)
            if result is not None:
                return result
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{what}: not after {timeout:g} s\n{_describe(objects)}")

    def wait_pod(
        self,
        name: str,
        namespace: str = "default",
        phase: str = "Running",
        timeout: float = _POD_SECONDS,
    ) -> Any:
        """Wait until the pod has `phase`; "Running" also asks that its containers are ready."""

        def done(pods: list[Any]) -> Any | None:
            return next((pod for pod in pods if _pod_is(pod, phase)), None)

        return self.wait(
            self.core.list_namespaced_pod,
            done,
            f"pod {namespace}/{name} is {phase}",
            timeout,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )

    def wait_pod_gone(
        self, name: str, namespace: str = "default", timeout: float = _POD_SECONDS
    ) -> None:
        """Wait until the API no longer has the pod."""
        self.wait(
            self.core.list_namespaced_pod,
            lambda pods: None if pods else True,
            f"pod {namespace}/{name} is gone",
            timeout,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )

    def wait_nodes_ready(
        self, names: Sequence[str], timeout: float = _POD_SECONDS, boot_id: str | None = None
    ) -> None:
        """Wait until each of the named nodes is Ready and free of the not-ready taint.

        With `boot_id` only what the kubelet says of that boot counts: the Node object of a machine
        that was rebooted stays Ready for as long as nobody missed it.
        """

        def done(nodes: list[Any]) -> bool | None:
            ready = {node.metadata.name for node in nodes if _node_is_ready(node, boot_id)}
            return True if ready.issuperset(names) else None

        self.wait(self.core.list_node, done, f"nodes {', '.join(names)} are Ready", timeout)

    def execute(
        self, pod: str, *command: str, namespace: str = "default", timeout: float = _CALL_SECONDS
    ) -> str:
        """Run a command in the pod's first container and return its output."""
        return self.kubectl(
            "exec", f"--namespace={namespace}", pod, "--", *command, timeout=timeout
        )


def manifest_text(manifest: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """Objects as one YAML stream; text stays as it is."""
    if isinstance(manifest, str):
        return manifest
    documents = [manifest] if isinstance(manifest, Mapping) else list(manifest)
    return yaml.safe_dump_all([dict(document) for document in documents], sort_keys=False)


def _item_type(listed: Any) -> Any:
    """The model of a list's items. Its name is not always the list's: V1ResourceClaimList has
    items of the type ResourceV1ResourceClaim, which `watch` would not guess."""
    declared = listed.openapi_types["items"]
    return getattr(client.models, declared.removeprefix("List[").removesuffix("]"))


def _follow(
    lister: Callable[..., Any],
    kind: Any,
    done: Callable[[list[Any]], Result | None],
    objects: dict[str, Any],
    version: str,
    deadline: float,
    selection: Mapping[str, Any],
) -> Result | None:
    """Follow one watch from `version`; None when it ended before `done` was content."""
    seconds = min(_WATCH_SECONDS, max(1, round(deadline - time.monotonic())))
    stream = watch.Watch(return_type=kind)
    try:
        for event in stream.stream(
            lister, resource_version=version, timeout_seconds=seconds, **selection
        ):
            item = event["object"]
            if event["type"] == "DELETED":
                objects.pop(item.metadata.uid, None)
            else:
                objects[item.metadata.uid] = item
            if (result := done(list(objects.values()))) is not None:
                return result
    except client.ApiException as error:
        if error.status != _GONE:
            raise
    except urllib3.exceptions.HTTPError:
        pass  # the connection broke (a test may have stopped the API server): list again
    finally:
        stream.stop()
    return None


def _pod_is(pod: Any, phase: str) -> bool:
    if pod.status.phase != phase:
        return False
    if phase != "Running":
        return True
    return all(status.ready for status in pod.status.container_statuses or [])


def _node_is_ready(node: Any, boot_id: str | None) -> bool:
    if boot_id is not None and node.status.node_info.boot_id != boot_id:
        return False
    tainted = any(taint.key == "node.kubernetes.io/not-ready" for taint in node.spec.taints or [])
    conditions = {item.type: item.status for item in node.status.conditions or []}
    return conditions.get("Ready") == "True" and not tainted


def _describe(objects: Mapping[str, Any]) -> str:
    seen = [
        {"name": item.metadata.name, "status": _without_nothing(item.to_dict().get("status"))}
        for item in objects.values()
    ]
    return json.dumps(seen, default=str)


def _without_nothing(value: Any) -> Any:
    """The models list every field that an object might have: those it has."""
    if isinstance(value, dict):
        return {key: _without_nothing(inner) for key, inner in value.items() if inner is not None}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list) else value
