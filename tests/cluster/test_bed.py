# SPDX-License-Identifier: Apache-2.0
"""The bed itself: nodes, pods, networks, and an API server that keeps or drops new fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from tests.bed.clusterbin import kubernetes_version
from tests.cluster.api import ClusterApi
from tests.cluster.bed import ClusterBed
from tests.cluster.controlplane import SERVICE_ADDRESS
from tests.cluster.manifests import links_slice, pod

DRIVER = "bed.example.com"


def test_nodes_are_ready_and_run_what_was_asked_for(cluster: ClusterBed) -> None:
    nodes = {node.metadata.name: node.status for node in cluster.api.core.list_node().items}
    assert sorted(nodes) == ["a", "b"]
    for name, series in (("a", "6.12."), ("b", "6.1.0-")):
        info = nodes[name].node_info
        assert info.kubelet_version == kubernetes_version()
        assert info.container_runtime_version.startswith("containerd://2.")
        assert info.kernel_version.startswith(series)


@pytest.mark.parametrize("node", ["a", "b"])
def test_a_scheduled_pod_runs_on_each_node(api: ClusterApi, node: str) -> None:
    manifest = pod(f"on-{node}", node=node)
    api.apply(manifest)
    try:
        running = api.wait_pod(f"on-{node}")
        assert running.spec.node_name == node
        assert api.execute(f"on-{node}", "id", "-u").strip() == "1000"
    finally:
        api.delete(manifest)


def test_a_pod_reaches_the_api_server_and_a_pod_of_the_other_node(api: ClusterApi) -> None:
    target = pod("target", ["httpd", "-f", "-p", "7000", "-h", "/etc"], node="b")
    probe = {"tcpSocket": {"port": 7000}, "periodSeconds": 1}
    target["spec"]["containers"][0]["readinessProbe"] = probe
    source = pod("source", node="a")
    api.apply([target, source])
    try:
        address = api.wait_pod("target").status.pod_ip
        api.wait_pod("source")
        fetched = api.execute("source", "wget", "-q", "-O", "-", f"http://{address}:7000/group")
        assert fetched == "root:x:0:\nuser:x:1000:\n"
        api.execute("source", "sh", "-c", f"nc -w 5 {SERVICE_ADDRESS} 443 </dev/null")
    finally:
        api.delete([target, source])


def test_a_service_account_token_names_its_node(api: ClusterApi) -> None:
    manifest = pod("token", node="b")
    api.apply(manifest)
    try:
        api.wait_pod("token")
        token = api.execute("token", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
        review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
        user = api.authentication.create_token_review(review).status.user
        assert user.username == "system:serviceaccount:default:default"
        assert user.extra["authentication.kubernetes.io/node-name"] == ["b"]
    finally:
        api.delete(manifest)


def test_a_published_slice_is_read_back_whole(api: ClusterApi) -> None:
    manifest = links_slice("a-links", "a", DRIVER)
    api.apply(manifest)
    try:
        stored = json.loads(api.kubectl("get", "resourceslice", "a-links", "-o", "json"))
        assert stored["spec"] == manifest["spec"]
    finally:
        api.delete(manifest)


def test_waits_outlast_an_api_server_that_is_away(cluster: ClusterBed) -> None:
    server, api, manifest = cluster.plane.component("kube-apiserver"), cluster.api, pod("patient")
    server.stop()
    server.start()
    found = api.wait(
        api.core.list_namespace, lambda spaces: len(spaces) or None, "the API server is back"
    )
    assert found >= 4
    cluster.plane.wait_ready()
    api.apply(manifest)
    try:
        api.wait_pod("patient")
    finally:
        api.delete(manifest)


def test_a_node_that_was_rebooted_runs_its_pods_again(cluster: ClusterBed) -> None:
    api, manifest = cluster.api, pod("resident", node="b", restartPolicy="Always")
    api.apply(manifest)
    try:
        api.wait_pod("resident")
        before = cluster.machine("b").boot_id
        cluster.reboot("b")
        assert cluster.machine("b").boot_id != before

        def restarted(pods: list[Any]) -> int | None:
            statuses = [status for item in pods for status in item.status.container_statuses or []]
            return next((s.restart_count for s in statuses if s.ready and s.restart_count), None)

        count = api.wait(
            api.core.list_namespaced_pod,
            restarted,
            "the container runs again",
            namespace="default",
            field_selector="metadata.name=resident",
        )
        assert count == 1
    finally:
        api.delete(manifest)
