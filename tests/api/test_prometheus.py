# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes real processes; every query of the dashboard and every alert is run.

The agent with its exporter is the program as it is installed, on a made-up machine, over TLS and
by a token that the API server knows; the controller and node-setup are, too. Two more agents with
fake kernels have links and claims. Nothing here is a made-up number.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest
import yaml

from bench.cluster.machine import NODE, Account, Machine
from bench.prepare.claims import Allocated
from tests.api import chart
from tests.api.accounts import Accounts
from tests.api.prometheus import Prometheus
from tests.bed.net import HOST_IP4
from tests.bed.process import spawn, stop
from tests.cluster.alone import Alone, add_node
from tests.cluster.driver import GROUP, NAMESPACE, ROOT
from tests.cluster.netns import Door, command_inside
from tests.fakes.exporter import NOBODY, interpreter
from usbdra.kube.custom import Contract
from usbdra.metrics.families import MODULES
from usbdra.pki import authority, files

FILES = ROOT / "deploy/helm/usbdra/files"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
AGENT, CONTROLLER, SETUP, NODE_A, NODE_B = 9641, 9642, 9643, 9644, 9645
SERIALS = ("PROM0001", "PROM0002")
VALUES = {"metrics.enabled": "true", "outsideHosts.enabled": "true"}
OUTSIDE = Contract(GROUP).host
KINDS = frozenset(
    {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    | {"CustomResourceDefinition"}
)


@dataclass
class Site:
    """What runs, and the folder of it."""

    plane: Alone
    folder: Path
    claims: list[dict[str, str]]
    prometheus: Prometheus
    node_b: subprocess.Popen[str]

    def tell(self, word: str, claim: Mapping[str, str]) -> None:
        """Have node b's agent prepare a claim, or give it back."""
        assert self.node_b.stdin is not None
        assert self.node_b.stdout is not None
        self.node_b.stdin.write(f"{word} {claim['namespace']} {claim['name']} {claim['uid']}\n")
        self.node_b.stdin.flush()
        assert self.node_b.stdout.readline() == "done\n", (self.folder / "node-b.log").read_text()


def program(*words: object) -> list[str]:
    return [sys.executable, "-m", "usbdra", *map(str, words)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prometheus")


@pytest.fixture(scope="module")
def site(plane: Alone, folder: Path) -> Iterator[Site]:
    """All of it, running and scraped."""
    with contextlib.ExitStack() as stack:
        only = chart.installed(plane.api, VALUES, only=lambda item: item["kind"] in KINDS)
        stack.enter_context(only)
        for name in (NODE, "node-a", "node-b"):
            add_node(plane.api, name, {})
            stack.callback(plane.api.core.delete_node, name)
            address = {"type": "InternalIP", "address": "127.0.0.1"}
            plane.api.core.patch_node_status(name, {"status": {"addresses": [address]}})
        ca = authority.make_authority("usbdra CA", datetime.now(UTC))
        files.write_authority(folder / "ca", ca)
        pki = {
            node: files.write_node(
                folder / "ca", node,
                authority.issue_node(ca, node, (host,), datetime.now(UTC)),
                ca.cert_pem(), force=False,
            )
            for node, host in ((NODE, HOST_IP4), ("node-a", "127.0.0.1"), ("node-b", "127.0.0.2"))
        }  # fmt: skip
        add_host(plane)
        run_parts(stack, plane, folder, pki)
        node_b = run_node(stack, plane, folder, pki, "node-b", NODE_B)
        run_node(stack, plane, folder, pki, "node-a", NODE_A)
        jobs = scraping(plane, folder, pki)
        prometheus = Prometheus(plane.folder.name, folder / "data", jobs, FILES / "alerts.yaml")
        stack.enter_context(prometheus)
        prometheus.until("all answer", lambda: prometheus.value("sum(up)") == 5)
        prometheus.until("published", lambda: prometheus.value("sum(usbdra_agent_ready)") >= 2)
        allocated = Allocated(plane.api, "node-b")
        stack.callback(allocated.remove)
        sticks = [
            {"pool": "usb-node-a", "device": f"usb-0781-5581-{s.lower()}", "serial": s}
            for s in SERIALS
        ]
        yield Site(plane, folder, allocated.make(sticks), prometheus, node_b)


def run_parts(
    stack: contextlib.ExitStack, plane: Alone, folder: Path, pki: Mapping[str, Path]
) -> None:
    """The agent with its exporter, the controller, and node-setup."""
    accounts = Accounts(plane, folder)
    server = urlsplit(plane.plane.server)
    token = accounts.token(NAMESPACE, "usbdra-agent", NODE)
    trust = plane.plane.identity(NODE, HOST_IP4).ca_pem.decode()
    account = Account(str(server.hostname), str(server.port or 443), token, trust)
    machine = stack.enter_context(Machine(plane.folder.name, account))
    machine.root.chmod(0o711)
    (machine.root / "run/usbdra-exporter").mkdir(mode=0o711)
    for module in MODULES:
        (machine.tree.sys / "module" / module).mkdir(parents=True, exist_ok=True)
    machine.grow(2)
    machine.start(
        flags=[
            f"--pki={pki[NODE]}", f"--metrics-address={HOST_IP4}", f"--metrics-port={AGENT}",
            f"--exporter-uid={NOBODY}", "--encryption=Off",
        ]
    )  # fmt: skip
    exporter = [
        "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
        "env", f"PYTHONPATH={ROOT}:{Path(pytest.__file__).parents[1]}",
        interpreter(), "-m", "usbdra", "exporter", "--metrics", "--encryption=Off",
        f"--socket={machine.root}/run/usbdra-exporter/agent.sock", "--port=3242", "--pod-uid=bench",
    ]  # fmt: skip
    start(stack, command_inside(plane.folder.name, exporter), folder / "exporter.log")
    controller = program(
        "controller", f"--namespace={NAMESPACE}", "--pod-name=one", "--health-port=8081",
        f"--metrics-port={CONTROLLER}", f"--signer={GROUP}/usbdra-node", "--outside-hosts",
        "--exporter-port=9",
        f"--kubeconfig={inner(plane, folder, 'usbdra-controller')}",
    )  # fmt: skip
    start(stack, command_inside(plane.folder.name, controller), folder / "controller.log")
    setup = program(
        "node-setup", f"--node={NODE}", f"--metrics-port={SETUP}",
        f"--kubeconfig={inner(plane, folder, 'usbdra-node-setup')}",
    )  # fmt: skip
    start(stack, machine.inside(setup), folder / "setup.log")


def add_host(plane: Alone) -> None:
    """A host outside that answered an earlier controller and is off now."""
    kind = f"crd/{OUTSIDE.plural}.{GROUP}"
    plane.api.kubectl("wait", "--for=condition=Established", "--timeout=60s", kind)
    host = {"apiVersion": OUTSIDE.api_version, "kind": OUTSIDE.kind, "metadata": {"name": "pi"}}
    plane.api.apply([{**host, "spec": {"address": "127.0.0.1"}}], namespace="default")
    status = {"status": {"devices": 2, "certificateUntil": "Jan  1 00:00:00 2099 GMT"}}
    plane.api.kubectl(
        "patch", "usbexporterhost", "pi", "--subresource=status", "--type=merge",
        "-p", json.dumps(status),
    )  # fmt: skip


def run_node(
    stack: contextlib.ExitStack,
    plane: Alone,
    folder: Path,
    pki: Mapping[str, Path],
    node: str,
    port: int,
) -> subprocess.Popen[str]:
    """fake_node.py; a short folder, for the paths of sockets are limited."""
    place = Path("/tmp") / f"usbdra-{node}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    stack.callback(shutil.rmtree, place)
    config = inner(plane, folder, None)
    words = [node, place, config, pki[node], port, *SERIALS]
    command = [sys.executable, "-m", "tests.api.fake_node", *map(str, words)]
    log = stack.enter_context((folder / f"{node}.log").open("wb"))
    process = subprocess.Popen(
        command_inside(plane.folder.name, command), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
    )  # fmt: skip
    stack.callback(end, process)
    return process


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def start(stack: contextlib.ExitStack, command: list[str], log: Path) -> None:
    file: IO[bytes] = stack.enter_context(log.open("wb"))
    stack.callback(stop, spawn(command, stdout=file))


def inner(plane: Alone, folder: Path, account: str | None) -> Path:
    """A kubeconfig for inside the namespace; None for an administrator's."""
    path = folder / f"{account or 'admin'}.kubeconfig"
    text = plane.plane.admin_kubeconfig.read_text()
    if account is not None:
        node = NODE if account == "usbdra-node-setup" else None
        text = plane.plane.token_kubeconfig(Accounts(plane, folder).token(NAMESPACE, account, node))
    config = yaml.safe_load(text)
    config["clusters"][0]["cluster"]["server"] = plane.plane.server
    path.write_text(yaml.safe_dump(config))
    return path


def scraping(plane: Alone, folder: Path, pki: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The jobs, as docs/metrics.md has them."""
    name = "prometheus"
    plane.api.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{name}-reads-usbdra"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "usbdra-metrics-reader",
                },
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            },
        ],
        namespace=NAMESPACE,
    )
    token = folder / "token"
    token.write_text(Accounts(plane, folder).token(NAMESPACE, name))
    agent = {
        "job_name": "usbdra-agent",
        "scheme": "https",
        "authorization": {"credentials_file": str(token)},
        "tls_config": {"ca_file": str(pki[NODE] / "ca.crt")},
        "static_configs": [{"targets": [f"{HOST_IP4}:{AGENT}"]}],
    }
    others = {
        "usbdra-controller": [CONTROLLER],
        "usbdra-node-setup": [SETUP],
        "usbdra-agent-fake": [NODE_A, NODE_B],
    }
    return [
        agent,
        *(
            {
                "job_name": job,
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
            for job, ports in others.items()
        ),
    ]


def test_every_panel_of_the_dashboard_shows_data(site: Site) -> None:
    prometheus = site.prometheus
    plural = {"spec": {"assignedNamespace": "default"}}
    device = f"usb-0781-5581-{SERIALS[0].lower()}"
    words = ("patch", "nodeusbdevice", device, "--type=merge", "-p", json.dumps(plural))
    prometheus.until("written down", lambda: prometheus.value("max(usbdra_node_devices)") >= 4)
    site.plane.api.kubectl(*words)
    for claim in site.claims:
        site.tell("prepare", claim)
    site.tell("unprepare", site.claims[1])
    prometheus.until("linked", lambda: prometheus.query("usbdra_link_round_trip_seconds > 0"))
    prometheus.until("seen", lambda: prometheus.value("sum(usbdra_unprepares_total)") == 1)
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    missing = {
        f"{panel['title']}: {target['expr']}"
        for panel in panels
        for target in panel["targets"]
        if not eventually(prometheus, filled(target["expr"]))
    }
    assert not missing
    assert len(panels) > 25
    assert prometheus.value('sum(usbdra_prepares_total{result="ok"})') == 2
    assert prometheus.value('sum(usbdra_grants_total{result="ok"})') == 2
    assert prometheus.value("sum(usbdra_links)") == 1
    assert prometheus.value("sum(usbdra_sessions)") == 1
    (sent,) = prometheus.query("usbdra_link_sent_bytes_total")
    assert sent["metric"]["peer"] == "node-a"
    assert prometheus.value("usbdra_exporter_up") == 1
    assert prometheus.value("sum(usbdra_collect_errors_total)") == 0
    assert prometheus.value("usbdra_assigned_devices") == 1
    assert prometheus.value('usbdra_outside_host_devices{host="pi"}') == 2
    assert prometheus.value('usbdra_outside_hosts{state="silent"}') == 1
    failed = 'sum(usbdra_outside_looks_total{result!="ok"})'
    prometheus.until("asked", lambda: prometheus.value(failed) > 0)


def filled(expression: str) -> str:
    """With Grafana's variables as it fills them in for `All`."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


def eventually(prometheus: Prometheus, expression: str) -> bool:
    with contextlib.suppress(AssertionError):
        prometheus.until("there", lambda: prometheus.query(expression), 3)
        return True
    return False


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_alert_is_evaluated_and_quiet(site: Site, rule: dict[str, Any]) -> None:
    site.prometheus.query(rule["expr"])
    groups = site.prometheus.get("rules")["groups"]
    (found,) = [r for g in groups for r in g["rules"] if r["name"] == rule["alert"]]
    assert found["health"] == "ok", found
    assert found["state"] in ("inactive", "pending"), found


def test_without_the_right_nothing_is_read(site: Site) -> None:
    """By the API server's word: no token, one it does not know, one of an account without right."""
    stranger = Accounts(site.plane, site.folder).token(NAMESPACE, "usbdra-controller")
    with contextlib.closing(Door(site.plane.folder.name, (HOST_IP4, AGENT))) as door:
        for token, status in (("", 401), ("made-up", 401), (stranger, 403)):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            request = urllib.request.Request(
                f"https://127.0.0.1:{door.port}/metrics", None, headers
            )
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, context=ssl._create_unverified_context())
            assert refused.value.code == status
            refused.value.close()
