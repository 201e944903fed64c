# SPDX-License-Identifier: Apache-2.0
"""The maker of the image's list of contents, on a small system made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.repo.test_image import load

SBOM = load("sbom")
STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Source: openssl (3.0.22-1)
Version: 3.0.22-1+b1
Description: one
 and another line

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: tool
Status: install ok installed
Architecture: all
Version: 1:2.0
"""
DEBS = "Package: libssl3\nArchitecture: amd64\nVersion: 3.0.22-1+b1\nSHA256: 11\n"
METADATA = "Metadata-Version: 2.4\nName: {}\nVersion: {}\n{}\n\nText with\nLicense: in it\n"
SITE = "opt/usbdra/lib/python3.11/site-packages"


def distribution(root: Path, name: str, version: str, header: str) -> Path:
    info = root / SITE / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA.format(name, version, header))
    (info / "RECORD").write_text(f"{name}.py,sha256=x,1\n{name}.pyc,,\n{info.name}/RECORD,,\n")
    (info.parent / f"{name}.py").write_text("")
    return info


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    files = {
        "var/lib/dpkg/status": STATUS,
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
        "usr/share/doc/libssl3/copyright": "Format: x\nLicense: Apache-2.0\n text\nLicense: MIT\n",
        "usr/share/doc/tool/copyright": "See /usr/share/common-licenses/GPL-2.\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    distribution(root, "usbdra", "0.1.0", "License-Expression: Apache-2.0")
    return root


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    facts = tmp_path / "facts"
    facts.mkdir()
    (facts / "debs").write_text(DEBS)
    item = {
        "metadata": {"name": "usbdra"},
        "download_info": {"archive_info": {"hash": "sha256=22"}},
    }
    (facts / "program.json").write_text(json.dumps({"install": [item]}))
    return facts


def by_name(document: Any) -> dict[str, Any]:
    return {item["name"]: item for item in document["components"]}


def test_what_is_installed_is_listed_with_what_is_known(root: Path, facts: Path) -> None:
    document = SBOM.document(root, facts)
    found = by_name(document)
    assert set(found) == {"libssl3", "tool", "usbdra"}
    assert found["libssl3"] == {
        "type": "library",
        "name": "libssl3",
        "version": "3.0.22-1+b1",
        "bom-ref": found["libssl3"]["purl"],
        "purl": "pkg:deb/debian/libssl3@3.0.22-1%2Bb1?arch=amd64&distro=debian-12"
        "&upstream=openssl%403.0.22-1",
        "licenses": [{"license": {"name": "Apache-2.0"}}, {"license": {"name": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": "11"}],
    }
    assert found["tool"]["licenses"] == [{"license": {"name": "GPL-2"}}]
    assert "hashes" not in found["tool"]
    assert found["tool"]["purl"].startswith("pkg:deb/debian/tool@1:2.0?arch=all")
    assert found["usbdra"]["type"] == "application"
    assert found["usbdra"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert found["usbdra"]["hashes"] == [{"alg": "SHA-256", "content": "22"}]
    assert document["metadata"]["component"]["version"] == "0.1.0"
    assert document["dependencies"][0]["dependsOn"] == [
        item["bom-ref"] for item in document["components"]
    ]


def test_the_same_system_gives_the_same_bytes(root: Path, facts: Path) -> None:
    first = json.dumps(SBOM.document(root, facts))
    assert json.dumps(SBOM.document(root, facts)) == first
    distribution(root, "other", "1", "License: MIT")
    changed = SBOM.document(root, facts)
    assert changed["serialNumber"] != json.loads(first)["serialNumber"]


@pytest.mark.parametrize(
    ("header", "licenses"),
    [
        ("License: MIT", [{"license": {"name": "MIT"}}]),
        (
            "License: " + "long " * 40 + "\nClassifier: License :: OSI Approved :: BSD License",
            [{"license": {"name": "BSD License"}}],
        ),
        ("Author: nobody", None),
    ],
    ids=["name", "text", "none"],
)
def test_a_licence_is_a_name_and_never_a_text(
    root: Path, facts: Path, header: str, licenses: Any
) -> None:
    distribution(root, "other", "1", header)
    assert by_name(SBOM.document(root, facts))["other"].get("licenses") == licenses


def test_what_is_left_out_of_a_wheel_is_told(root: Path, facts: Path) -> None:
    distribution(root, "other", "1", "License: MIT")
    (root / SITE / "other.py").unlink()
    found = by_name(SBOM.document(root, facts))
    assert found["other"]["pedigree"] == {"notes": "1 of the wheel's 2 files are not in this image"}
    assert "pedigree" not in found["usbdra"]


def test_what_a_wheel_says_was_built_into_it_is_listed_once(root: Path, facts: Path) -> None:
    info = distribution(root, "Other_One", "1", "License: MIT")
    crate = {"type": "library", "name": "c", "version": "2", "purl": "pkg:cargo/c@2", "author": "x"}
    local = {"type": "library", "name": "own", "version": "1", "purl": "pkg:cargo/own@1"}
    local["purl"] += "?download_url=file://somewhere"
    (info / "sboms").mkdir()
    for name in ("one.json", "two.json"):
        (info / "sboms" / name).write_text(json.dumps({"components": [crate, local]}))
    inner = by_name(SBOM.document(root, facts))["Other_One"]["components"]
    assert [item["purl"] for item in inner] == ["pkg:cargo/c@2", "pkg:cargo/own@1"]
    assert inner[0] == {
        "type": "library",
        "name": "c",
        "version": "2",
        "purl": "pkg:cargo/c@2",
        "bom-ref": "pkg:pypi/other-one@1#pkg:cargo/c@2",
    }
