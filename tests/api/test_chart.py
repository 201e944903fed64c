# SPDX-License-Identifier: Apache-2.0
"""Everything that users apply, as the real API server sees it: chart, flat files, examples."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bed.clusterbin import helm_binary
from tests.cluster import flat
from tests.cluster.api import ClusterApi
from tests.cluster.driver import CHART, GROUP, NAMESPACE, ROOT, render

EXAMPLES = sorted((ROOT / "deploy/examples").glob("*/manifest.yaml"))
# One set for each branch of the templates.
VALUES: dict[str, dict[str, str]] = {
    "defaults": {},
    "certificates by the controller": {"agent.certificates.mode": "Cluster"},
    "certificates by cert-manager": {
        "agent.certificates.mode": "CertManager",
        "agent.certificates.signerName": "clusterissuers.cert-manager.io/usb",
    },
    "an exporter without privilege": {
        "exporter.mode": "process",
        "exporter.allowedCIDRs[0]": "10.0.0.0/8",
    },
    "the agent listens itself": {"exporter.mode": "inprocess", "exporter.encryption": "Allowed"},
    "no controller": {
        "controller.enabled": "false",
        "requireAssignment": "false",
        "agent.certificates.mode": "Files",
    },
    "another group, an image elsewhere": {
        "group": "usb.example.com",
        "image.repository": "registry.example.com/team/usbdra",
        "image.tag": "1.2.3",
        "image.pullSecrets[0].name": "registry",
        "agent.priorityClassName": "",
    },
    "virtual machines": {
        "virtualMachines.enabled": "true",
        "virtualMachines.kind": "Minimal",
        "virtualMachines.podLabel": "vm.example.com/name",
        "virtualMachines.socket": "run/qmp.sock",
        "policies.enabled": "true",
    },
    "virtual machines of a platform": {
        "virtualMachines.enabled": "true",
        "virtualMachines.kind": "Platform",
    },
    "hosts outside the cluster": {"outsideHosts.enabled": "true"},
    "a web page by port-forward": {"controller.web.enabled": "true"},
    "a web page with a certificate": {
        "controller.web.enabled": "true",
        "controller.web.tlsSecret": "web-tls",
    },
    "metrics": {
        "metrics.enabled": "true",
    },
    "metrics on loopback": {"metrics.enabled": "true", "metrics.agentAddress": "Loopback"},
    "traces": {"tracing.endpoint": "http://collector.otel:4318", "tracing.samplingRatio": "0.25"},
    "every switch the other way": {
        "agent.visibility": "Node",
        "agent.forwardLowSpeed": "true",
        "requireAssignment": "true",
        "policies.enabled": "true",
        "policies.deviceClasses[0]": "scanners.example.com",
    },
}


def dry_run(api: ClusterApi, manifest: str | Path) -> list[str]:
    """Server-side dry run that refuses unknown and doubled fields; the objects it named."""
    words = ["apply", "--dry-run=server", "--validate=strict", f"--namespace={NAMESPACE}", "-f"]
    if isinstance(manifest, Path):
        return api.kubectl(*words, str(manifest)).splitlines()
    return api.kubectl(*words, "-", text=manifest).splitlines()


@pytest.fixture(scope="module", autouse=True)
def _namespace(api: ClusterApi) -> None:
    """A dry run of the namespace does not make it; what goes into it needs it."""
    api.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}")


def lint(values: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """`helm lint --strict` with values from a file."""
    command = [str(helm_binary()), "lint", "--strict", str(CHART), "--values", "-"]
    text = json.dumps(values)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_helm_finds_nothing_wrong() -> None:
    done = lint({})
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_takes_all_of_the_chart(api: ClusterApi, name: str) -> None:
    text = render(VALUES[name])
    assert len(dry_run(api, text)) == len([item for item in yaml.safe_load_all(text) if item])


@pytest.mark.parametrize("name", ["install.yaml", "uninstall.yaml"])
def test_the_api_server_takes_the_flat_files(api: ClusterApi, name: str) -> None:
    assert dry_run(api, ROOT / "deploy" / name)


def test_the_flat_files_are_what_the_chart_gives() -> None:
    assert flat.stale() == [], "run `make install-yaml`"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_api_server_takes_the_examples(api: ClusterApi, path: Path) -> None:
    assert dry_run(api, path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"visibility": "Node"}, "visibility"),
        ({"agent": {"prot": 3241}}, "prot"),
        ({"image": {"tags": "1"}}, "tags"),
        ({"image": {"pullSecrets": [{"nmae": "x"}]}}, "nmae"),
        ({"controller": {"replica": 2}}, "replica"),
        ({"agent": {"certificates": {"modus": "Files"}}}, "modus"),
        ({"agent": {"port": 0}}, "port"),
        ({"agent": {"visibility": "Everywhere"}}, "visibility"),
        ({"kubeletDir": "var/lib/kubelet"}, "kubeletDir"),
        ({"exporter": {"encryption": "Sometimes"}}, "encryption"),
        ({"exporter": {"uid": 0}}, "uid"),
        ({"controller": {"web": {"tlsSecrets": "x"}}}, "tlsSecrets"),
        ({"controller": {"web": {"tlsSecret": "../x"}}}, "tlsSecret"),
        ({"tracing": {"endpoint": "collector:4318"}}, "endpoint"),
        ({"tracing": {"samplingRatio": 1.5}}, "samplingRatio"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values: Mapping[str, object], said: str) -> None:
    done = lint(values)
    assert done.returncode == 1
    assert said in done.stdout.partition("values don't meet the specifications")[2]


def workload(name: str, values: dict[str, str] | None = None) -> dict[str, Any]:
    """A DaemonSet or Deployment of the chart, by name."""
    items = [item for item in yaml.safe_load_all(render(values)) if item]
    (found,) = [
        item
        for item in items
        if item["kind"] in ("DaemonSet", "Deployment") and item["metadata"]["name"] == name
    ]
    return dict(found)


@pytest.mark.parametrize("name", ["usbdra-agent", "usbdra-controller"])
def test_a_part_is_asked_whether_it_started_serves_and_lives(name: str) -> None:
    first = workload(name)["spec"]["template"]["spec"]["containers"][0]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= first.keys()
    patience = first["startupProbe"]["periodSeconds"] * first["startupProbe"]["failureThreshold"]
    assert patience >= 300, "a busy node may take a minute to start Python"


def test_the_page_is_in_clear_inside_its_pod_alone() -> None:
    """A Service and a way in for others only with a certificate; off, nothing of it is there."""
    assert "web" not in json.dumps(workload("usbdra-controller"))
    on = {"controller.web.enabled": "true"}
    plain = workload("usbdra-controller", on)["spec"]["template"]["spec"]["containers"][0]
    assert "--web-port=8082" in plain["args"]
    assert not [word for word in plain["args"] if word.startswith("--web-tls")]
    assert "usbdra-web" not in render(on)
    tls = {**on, "controller.web.tlsSecret": "web-tls"}
    assert "--web-tls=/etc/usbdra/web" in json.dumps(workload("usbdra-controller", tls))
    assert "usbdra-web" in render(tls)


def test_an_agent_is_evicted_last_and_two_may_overlap() -> None:
    agent = workload("usbdra-agent")
    spec = agent["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert agent["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    for container in spec["containers"]:
        assert not container.get("ports"), "two instances overlap on the host's network"
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_agents_run_on_prepared_nodes_unless_local_use_is_allowed_on_others() -> None:
    def selector(**values: str) -> object:
        spec = workload("usbdra-agent", values)["spec"]["template"]["spec"]
        return spec.get("nodeSelector")

    assert selector() == {f"{GROUP}/usbip": "true"}
    assert selector(**{"agent.localOnly": "true"}) is None


def test_the_exporter_has_nothing_but_the_agents_socket() -> None:
    agent = workload("usbdra-agent", {"exporter.mode": "process"})
    spec = agent["spec"]["template"]["spec"]
    privileged, exporter = spec["containers"]
    assert exporter["securityContext"] == {
        "runAsUser": 64241,
        "runAsGroup": 64241,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert f"--exporter-uid={exporter['securityContext']['runAsUser']}" in privileged["args"]
    socket = {"name": "exporter", "mountPath": "/run/usbdra-exporter"}
    assert exporter["volumeMounts"] == [{**socket, "readOnly": True}]
    assert socket in privileged["volumeMounts"]
    # No token of the API by the back door: kubelets mount it into every container by default.
    assert spec["automountServiceAccountToken"] is False
