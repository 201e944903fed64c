# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb support-bundle`: what is in it, and what never is."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.cli.kubectl.make import node, record
from tests.unit.controller.make import CONTRACT, STICK, claim
from tests.unit.slices.samples import offer
from usbdra.cli.kubectl import bundle
from usbdra.kube.errors import ApiForbidden
from usbdra.kube.types import (
    CONFIG_MAP,
    CSR,
    DAEMON_SET,
    EVENT,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    SECRET,
)
from usbdra.slices.build import SliceOptions, build
from usbdra.types import Hub

PLANTED = "s3cr3t-Planted"
LABELS = {"app.kubernetes.io/name": "usbdra"}


def meta(name: str, namespace: str = "usbdra", **more: Any) -> dict[str, Any]:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": PLANTED}
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, **where, "labels": LABELS, "annotations": annotations, **more}


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    """A cluster with the driver at work and a secret wherever one can be."""
    env = [{"name": "PASSWORD", "value": PLANTED}]
    container = {"name": "agent", "image": "usbdra:1", "env": env, "args": [f"--token={PLANTED}"]}
    status = {"containerStatuses": [{"name": "agent", "restartCount": 2}]}
    for name in ("a", "b"):
        spec = {"nodeName": name, "containers": [container]}
        cluster.put(POD, {"metadata": meta(f"agent-{name}"), "spec": spec, "status": status})
        path = POD.path("usbdra", f"agent-{name}", "log")
        cluster.logs[path, "agent", False] = f"started\nAuthorization: Bearer {PLANTED}\n"
    cluster.logs[POD.path("usbdra", "agent-a", "log"), "agent", True] = "it ended\n"
    template = {"template": {"metadata": {}, "spec": {"containers": [container]}}}
    cluster.put(DAEMON_SET, {"metadata": meta("usbdra-agent"), "spec": template})
    cluster.put(SECRET, {"metadata": meta("usbdra-ca"), "data": {"tls.key": PLANTED}})
    cluster.put(CONFIG_MAP, {"metadata": meta("usbdra-trust"), "data": {"ca.crt": PLANTED}})
    request = {"signerName": CONTRACT.key("usbdra-node"), "request": PLANTED, "username": "agent"}
    issued = {"certificate": PLANTED, "conditions": [{"type": "Approved"}]}
    cluster.put(CSR, {"metadata": meta("csr", ""), "spec": request, "status": issued})
    cluster.put(NODE, {**node("a"), "spec": {"providerID": PLANTED}})
    cluster.put(CONTRACT.node_device, {**record(), "metadata": meta(STICK, "")})
    cluster.put(RESOURCE_CLAIM, claim("lab", "c", pods=("p",)))
    other = {"devices": {"config": [{"opaque": {"driver": "x", "parameters": PLANTED}}]}}
    cluster.put(RESOURCE_CLAIM, {"metadata": meta("foreign", "lab"), "spec": other})
    for item in build([offer()], {Hub.HIGH: 8}, SliceOptions(node="b")):
        cluster.put(RESOURCE_SLICE, item)
    for name, reporter in (("ours", CONTRACT.driver), ("theirs", "kubelet")):
        told = {"reportingController": reporter, "note": f"password: {PLANTED}"}
        cluster.put(EVENT, {"metadata": {"name": name, "namespace": "lab"}, **told})
    return cluster


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    return found


def test_objects_logs_ports_and_versions_are_in_it_and_no_secret(
    usb: Cli, full: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "b.tar.gz"
    result = usb("support-bundle", "-f", path)
    assert (result.code, result.out) == (0, f"{path}\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert PLANTED.encode() not in gzip.decompress(path.read_bytes())
    found = contents(path)
    assert found["logs/agent-a/agent.log"].startswith("started\nAuthorization: Bearer (removed)")
    assert found["logs/agent-a/agent.previous.log"] == "it ended\n"
    assert json.loads(found["versions.json"])["images"] == ["usbdra:1"]
    (high,) = json.loads(found["ports.json"])
    assert (high["node"], high["free"]) == ("b", 8)
    kinds = ("nodeusbdevices", "resourceclaims", "nodes", "events", "daemonsets")
    names = {
        kind: [i["metadata"]["name"] for i in json.loads(found[f"objects/{kind}.json"])]
        for kind in kinds
    }
    assert names == {
        "nodeusbdevices": [STICK],
        "resourceclaims": ["c"],
        "nodes": ["a"],
        "events": ["ours"],
        "daemonsets": ["usbdra-agent"],
    }
    (request,) = json.loads(found["objects/certificatesigningrequests.json"])
    assert request["status"] == {"conditions": [{"type": "Approved"}]}
    assert "agent-b" in found["missing.txt"]  # it has no log of before
    assert "objects/secrets.json" not in found


def test_what_cannot_be_read_is_said_and_the_rest_is_there(
    usb: Cli, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.fail(ApiForbidden("list", 403, "Forbidden", "not for you"))
    path = tmp_path / "b.tar.gz"
    result = usb("support-bundle", "-f", path, "-o", "json")
    assert result.code == 0
    said = json.loads(result.out)
    assert said["file"] == str(path)
    assert "resourceslices: list: not for you" in said["missing"]
    assert "no pod of the driver is in namespace usbdra" in contents(path)["missing.txt"]


def test_logs_of_one_node_and_no_more_than_fits(
    usb: Cli, full: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usb("support-bundle", "-f", tmp_path / "one.tar.gz", "--node", "b")
    logs = [name for name in contents(tmp_path / "one.tar.gz") if name.startswith("logs/")]
    assert logs == ["logs/agent-b/agent.log"]
    monkeypatch.setattr(bundle, "ALL_BYTES", 1)
    usb("support-bundle", "-f", tmp_path / "two.tar.gz")
    found = contents(tmp_path / "two.tar.gz")
    assert [name for name in found if name.startswith("logs/")] == ["logs/agent-a/agent.log"]
    assert "logs of agent-b: the bundle is large enough; --node" in found["missing.txt"]


def test_a_file_that_is_there_is_kept_and_a_half_one_is_not(
    usb: Cli, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    result = usb("support-bundle", "-f", path)
    assert (result.code, result.err) == (2, f"usbdra: {path} exists; name another file with -f\n")
    assert path.read_text() == "mine"
    half = tmp_path / "half.tar.gz"
    monkeypatch.setattr(cluster, "list", None)
    assert usb("support-bundle", "-f", half).code == 70
    assert not half.exists()
