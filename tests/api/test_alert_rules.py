# SPDX-License-Identifier: Apache-2.0
"""promtool's own test of the alerts: series that make each fire, and series that must not."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.driver import ROOT

FILE = ROOT / "deploy/helm/usbdra/files/alerts.yaml"
GROUPS = yaml.safe_load(FILE.read_text())["groups"]
RULES = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
I = '{instance="n"}'  # noqa: E741 the labels of nearly all
AGENT = '{job="usbdra-agent",instance="n"}'
HOST = '{instance="c",host="pi"}'
OUTSIDE_EXPIRY = "usbdra_outside_host_certificate_expiry_timestamp_seconds"


@dataclass
class Case:
    """Series that fire at minute 40 with these labels, and several sets that do not.

    Values as promtool has them: start+step x times, one a minute; `_` is none.
    """

    fires: dict[str, str]
    labels: dict[str, str] = field(default_factory=lambda: {"instance": "n"})
    quiet: list[dict[str, str]] = field(default_factory=list)


def expiry(left: str) -> dict[str, str]:
    """A certificate of a day that has so long to live, in seconds, and is not renewed."""
    labels = '{instance="n",certificate="node"}'
    return {
        f"usbdra_certificate_expiry_timestamp_seconds{labels}": f"{left}x60",
        f"usbdra_certificate_lifetime_seconds{labels}": "86400x60",
    }


def ports(free: int, claims: int) -> dict[str, str]:
    labels = '{{instance="n",hub="super",state="{}"}}'
    return {
        f"usbdra_ports{labels.format('free')}": f"{free}x60",
        f"usbdra_ports{labels.format('claims')}": f"{claims}x60",
    }


def seen(devices: int, nodes: int) -> dict[str, str]:
    return {
        'usbdra_published_devices{instance="c",reach="Cluster"}': f"{devices}x60",
        'usbdra_published_devices{instance="c",reach="Node"}': "900000x60",
        'usbdra_publishing_nodes{instance="c"}': f"{nodes}x60",
    }


CASES = {
    "UsbdraNoReadyNode": Case(
        {f"usbdra_agent_ready{I}": "0x60"},
        {},
        [{f"usbdra_agent_ready{I}": "1x60"}, {f"usbdra_agent_ready{I}": "1x37 0x20"}],
    ),
    "UsbdraAgentDown": Case(
        {f"up{AGENT}": "1x20 0x60"},
        {"instance": "n", "job": "usbdra-agent"},
        [{f"up{AGENT}": "1x35 0x60"}, {'up{job="other",instance="n"}': "0x60"}],
    ),
    "UsbdraAgentNotReady": Case(
        {f"usbdra_agent_ready{I}": "0x60"}, quiet=[{f"usbdra_agent_ready{I}": "0x30 1x60"}]
    ),
    "UsbdraExporterDown": Case(
        {f"usbdra_exporter_up{I}": "0x60"},
        quiet=[{f"usbdra_exporter_up{I}": "1x60"}, {}],
    ),
    "UsbdraLinkFlapping": Case(
        {f"usbdra_losses_total{I}": "0x20 1+1x10 11x30"},
        quiet=[{f"usbdra_losses_total{I}": "0x20 1+1x1 2x40"}, {f"usbdra_losses_total{I}": "9x60"}],
    ),
    "UsbdraLinkLost": Case(
        {f"usbdra_claims_restoring{I}": "0x20 2x40"},
        quiet=[{f"usbdra_claims_restoring{I}": "0x33 1x40"}],
    ),
    "UsbdraPortsExhausted": Case(
        ports(0, 8),
        {"instance": "n", "hub": "super", "state": "free"},
        [ports(1, 7), ports(0, 0)],  # a kernel without ports is no alert
    ),
    "UsbdraPrepareFailing": Case(
        {'usbdra_prepares_total{instance="n",result="Busy"}': "0x20 1+1x20"},
        {"instance": "n", "result": "Busy"},
        [
            {'usbdra_prepares_total{instance="n",result="ok"}': "0+5x60"},
            {'usbdra_prepares_total{instance="n",result="Busy"}': "0x20 1+1x2 3x30"},
        ],
    ),
    "UsbdraUnprepareFailing": Case(
        {'usbdra_unprepares_total{instance="n",result="DetachStuck"}': "0x30 1x30"},
        {"instance": "n", "result": "DetachStuck"},
        [
            {'usbdra_unprepares_total{instance="n",result="DetachStuck"}': "0x60"},
            {'usbdra_unprepares_total{instance="n",result="ok"}': "0+1x60"},
        ],
    ),
    "UsbdraCertificateExpiring": Case(
        expiry("14000"),  # at minute 40: 2400 s later
        {"instance": "n", "certificate": "node"},
        [expiry("30000"), {}],
    ),
    "UsbdraModulesUnloaded": Case(
        {'usbdra_node_state{instance="n",reason="ModulesUnloaded"}': "0x20 1x40"},
        {"instance": "n", "reason": "ModulesUnloaded"},
        [{'usbdra_node_state{instance="n",reason="ModulesMissing"}': "1x60"}],
    ),
    "UsbdraControllerDown": Case(
        {'up{job="usbdra-controller",instance="c"}': "1x20 0x40"},
        {},
        [{'up{job="usbdra-controller",instance="c"}': "0x30 1x30"}],
    ),
    "UsbdraNoLeader": Case(
        {'usbdra_leader{instance="c"}': "0x60", 'usbdra_leader{instance="d"}': "0x60"},
        {},
        [{'usbdra_leader{instance="c"}': "0x60", 'usbdra_leader{instance="d"}': "1x60"}],
    ),
    "UsbdraControllerRetrying": Case(
        {'usbdra_queue_failing{instance="c",queue="devices"}': "3x60"},
        {"instance": "c", "queue": "devices"},
        [{'usbdra_queue_failing{instance="c",queue="devices"}': "3x20 0x5 3x60"}],
    ),
    "UsbdraVisibilityTooWide": Case(
        seen(8000, 1000),
        {"instance": "c"},
        [seen(800, 100), seen(0, 1000)],  # 100 nodes with 8 each are fine; node visibility always
    ),
    "UsbdraOutsideHostSilent": Case(
        {f"usbdra_outside_host_ready{HOST}": "1x20 0x40"},
        {"instance": "c", "host": "pi"},
        [{f"usbdra_outside_host_ready{HOST}": "1x20 0x8 1x30"}, {}],
    ),
    "UsbdraOutsideHostCertificateExpiring": Case(
        {f"{OUTSIDE_EXPIRY}{HOST}": f"{14 * 86400}x60"},
        {"instance": "c", "host": "pi"},
        [{f"{OUTSIDE_EXPIRY}{HOST}": f"{16 * 86400}x60"}],
    ),
}


def promtool(folder: Path, alert: str, series: dict[str, str], expected: list[Any]) -> str:
    """Empty when the alert does at minute 40 what is expected. Its annotations are not compared:
    test_prometheus.py has them evaluated."""
    rules = [{key: value for key, value in RULES[alert].items() if key != "annotations"}]
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "one", "rules": rules}]}))
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {
        "interval": "1m",
        "input_series": given,
        "alert_rule_test": [{"eval_time": "40m", "alertname": alert, "exp_alerts": expected}],
    }
    file = folder / "test.yml"
    file.write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr if done.returncode else ""


def test_the_file_is_as_prometheus_wants_it() -> None:
    subprocess.run(["promtool", "check", "rules", str(FILE)], check=True, capture_output=True)


def test_every_alert_has_its_case() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires(alert: str, tmp_path: Path) -> None:
    case = CASES[alert]
    labels = {**case.labels, **RULES[alert]["labels"]}
    assert not promtool(tmp_path, alert, case.fires, [{"exp_labels": labels}])


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        pytest.param(a, quiet, id=f"{a}-{n}")
        for a, c in CASES.items()
        for n, quiet in enumerate(c.quiet)
    ],
)
def test_an_alert_is_quiet(alert: str, series: dict[str, str], tmp_path: Path) -> None:
    assert not promtool(tmp_path, alert, series, [])
