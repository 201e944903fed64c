# SPDX-License-Identifier: Apache-2.0
"""The changelog knows the version, and news fragments can be sorted into it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTIONS = ("added", "changed", "fixed", "removed")


def test_newest_heading_is_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == project["version"]


def test_fragments_name_topic_and_section_and_hold_a_sentence() -> None:
    for path in (ROOT / "news").iterdir():
        if path.name == "README.md":
            continue
        assert re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(SECTIONS)})\.md", path.name), path.name
        assert path.read_text().strip().endswith("."), path.name


def test_documents_link_to_files_that_are_there() -> None:
    for document in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"
