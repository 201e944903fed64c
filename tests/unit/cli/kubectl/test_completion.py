# SPDX-License-Identifier: Apache-2.0
"""Words that kubectl asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.kubectl.conftest import Cluster
from tests.unit.cli.kubectl.make import record
from tests.unit.controller.make import CONTRACT, STICK
from usbdra.cli.kubectl import completion
from usbdra.kube.errors import ApiUnavailable
from usbdra.kube.types import NAMESPACE, POD, RESOURCE_CLAIM

USB = CONTRACT.device


@pytest.fixture
def words(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("usbdra.config.DEFAULT_FILE", Path("/nonexistent"))
    for space in ("lab", "office"):
        cluster.put(NAMESPACE, {"metadata": {"name": space}})
        cluster.put(POD, {"metadata": {"name": f"pod-{space}", "namespace": space}})
        cluster.put(RESOURCE_CLAIM, {"metadata": {"name": f"c-{space}", "namespace": space}})
    cluster.put(CONTRACT.node_device, record())
    cluster.put(CONTRACT.node_device, record(name="other"))
    cluster.put(USB, {"metadata": {"name": STICK, "namespace": "lab"}})
    spec = {"device": "dongle", "pod": {"name": "x"}}
    meta = {"name": "some", "namespace": "lab"}
    cluster.put(CONTRACT.attachment, {"metadata": meta, "spec": spec})
    cluster.put(CONTRACT.machine, {"metadata": {"name": "win", "namespace": "lab"}})
    return cluster


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["assign", ""], ["other", STICK]),
        (["assign", "usb-"], [STICK]),
        (["unassign", "o"], ["other"]),
        (["assign", STICK, "-n", ""], ["lab", "office"]),
        (["attach", ""], [STICK]),
        (["attach", "-n", "office", ""], []),
        (["attach", STICK, "--pod", ""], ["pod-lab"]),
        (["attach", STICK, "--vm", "w"], ["win"]),
        (["detach", ""], ["dongle"]),
        (["explain", "-n", "office", ""], ["claim/c-office", "pod-office", "pod/pod-office"]),
        (["devices", "-o", "w"], ["wide"]),
    ],
)
def test_names_come_from_the_cluster(words: Cluster, typed: list[str], offered: list[str]) -> None:
    assert list(completion.answer(typed)) == [*offered, ":4"]


def test_commands_come_with_their_help() -> None:
    lines = list(completion.answer(["una"]))
    assert lines[0].startswith("unassign\tTake a device from its namespace")
    assert lines[1:] == [":4"]
    assert len(list(completion.answer([]))) > 5


def test_files_are_left_to_the_shell() -> None:
    assert list(completion.answer(["devices", "--kubeconfig", ""])) == [":0"]


def test_a_cluster_that_does_not_answer_offers_nothing(
    words: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words.fail(ApiUnavailable("list", 0, "NoAnswer", "gone"))
    assert list(completion.answer(["assign", ""])) == [":4"]
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert list(completion.answer(["attach", ""])) == [":4"]
    assert capsys.readouterr() == ("", "")
