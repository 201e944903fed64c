# SPDX-License-Identifier: Apache-2.0
"""The image's files agree with the project: versions, exact requirements, one pinned base."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "deploy/image"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_exact_versions_are_those_that_the_project_allows() -> None:
    lines = (IMAGE / "requirements.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cluster"]]
    for text in wanted:
        requirement = Requirement(text)
        assert pinned[requirement.name] in requirement.specifier, (
            f"run deploy/image/lock.py: {text}"
        )


def test_the_base_is_pinned_by_tag_and_digest() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=docker\.io/library/debian:bookworm-\d{8}-slim$", text, re.M)
    assert re.search(r"^ARG DIGEST=@sha256:[0-9a-f]{64}$", text, re.M)
    froms = re.findall(r"^FROM (\S+)", text, re.M)
    assert set(froms) == {"${BASE}${DIGEST}", "tools", "environment", "runtime"}
    assert f"ARG VERSION={PROJECT['version']}\n" in text
