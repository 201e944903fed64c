# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboard speak of metrics that exist, and each alert has its runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from usbdra.metrics.families import PARTS, Kind

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "deploy/helm/usbdra/files"
RULES = [
    rule
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ADDED = {"instance", "job", "node", "le"}
"""Labels that are not ours: of the scrape, and of histograms."""


def names() -> dict[str, set[str]]:
    """Every series' name and its labels."""
    found: dict[str, set[str]] = {}
    for family in (family for families in PARTS.values() for family in families):
        ends = ("_bucket", "_sum", "_count") if family.kind is Kind.HISTOGRAM else ("",)
        for end in ends:
            found[family.name + end] = {label.name for label in family.labels}
    return found


def queries() -> Iterator[Any]:
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in PANELS:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    known = names()
    used = set(re.findall(r"\busbdra_[a-z_]+", query))
    assert used <= known.keys()
    labels = set().union(*(known[name] for name in used)) | ADDED
    grouped = {
        word
        for inner in re.findall(r"(?:by|on) \(([^)]*)\)", query)
        for word in re.findall(r"\w+", inner)
    }
    matched = {
        word
        for inner in re.findall(r"\{([^}]*)\}", query)
        for word in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inner)
    }
    assert grouped | matched <= labels


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_where_to_read_on(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    notes = rule["annotations"]
    assert notes["runbook_url"] == f"docs/troubleshooting.md#{name.lower()}"
    assert f"\n### {name}\n" in (ROOT / "docs/troubleshooting.md").read_text()
    assert notes["summary"]
    assert notes["description"]
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_panels_have_titles_and_ids_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    titles = [panel["title"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
