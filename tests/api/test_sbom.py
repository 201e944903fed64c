# SPDX-License-Identifier: Apache-2.0
"""The image's CycloneDX document: valid, in the image, and nothing in the image that it lacks."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tests.api.image import as_user
from tests.bed.host import program
from tests.cluster import driver
from tests.cluster.usbdra_image import SBOM, usbdra_sbom
from tests.locks import IMAGE, pins

SITE = "opt/usbdra/lib/python3.11/site-packages"
# What belongs to no package: what is compiled, the environment itself, Debian's choices among
# programs, the packages' own scripts, this document.
MADE = re.compile(
    r"/(opt/usbdra/lib|usr/(lib|share)/python3.*)/.*\.pyc"
    r"|/opt/usbdra/(bin/(python3?|python3\.11|[Aa]ctivate.*)|lib64|pyvenv\.cfg)"
    r"|/usr/(bin/(awk|nawk|which)|local/man|share/info/dir)"
    rf"|/var/lib/dpkg/info/.*|/{SBOM}"
)
# Configuration, accounts, devices: what may lie there without a package, if it is no program.
DATA = re.compile(r"/(dev|etc|root|run|var)/.*")


@pytest.fixture(scope="module")
def text() -> str:
    """The document that stands beside the image."""
    return usbdra_sbom(driver.VERSION).read_text()


@pytest.fixture(scope="module")
def listed(text: str) -> dict[str, Any]:
    """The document, parsed."""
    found: dict[str, Any] = json.loads(text)
    return found


def named(document: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """(purl's type, name, version) of its components."""
    purls = [PackageURL.from_string(item["purl"]) for item in document["components"]]
    return {(purl.type, purl.name, str(purl.version)) for purl in purls}


def there(root: Path) -> set[tuple[str, str, str]]:
    """The same, as dpkg and Python themselves see a system."""
    query = [program("dpkg-query"), f"--root={root}", "--show", "--showformat"]
    said = subprocess.run(
        [*query, "${db:Status-Status} ${Package} ${Version}\n"],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in said.stdout.splitlines()]
    debs = {("deb", name, version) for status, name, version in lines if status == "installed"}
    found = importlib.metadata.distributions(path=[str(root / SITE)])
    return debs | {("pypi", _normal(each.metadata["Name"]), each.version) for each in found}


def test_it_is_what_cyclonedx_says_it_must_be(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_image_holds_it(image_root: Path, text: str) -> None:
    assert (image_root / SBOM).read_text() == text
    said = as_user(image_root, "cat", f"/{SBOM}")
    assert said.stdout == text


def test_it_lists_all_that_is_installed_and_no_more(image_root: Path, listed: Any) -> None:
    assert named(listed) == there(image_root)


@pytest.mark.parametrize("kind", ["deb", "pypi"])
def test_a_package_that_it_lacks_is_seen(image_root: Path, listed: Any, kind: str) -> None:
    """The comparison of the test before, on an image with one package more."""
    status, info = image_root / "var/lib/dpkg/status", image_root / SITE / "late-1.0.dist-info"
    before = status.read_text()
    try:
        if kind == "deb":
            entry = "Package: late\nStatus: install ok installed\nVersion: 1.0\nArchitecture: all\n"
            status.write_text(f"{before}\n{entry}Maintainer: n\nDescription: n\n")
        else:
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Late\nVersion: 1.0\n")
        assert there(image_root) - named(listed) == {(kind, "late", "1.0")}
    finally:
        status.write_text(before)
        shutil.rmtree(info, ignore_errors=True)


def test_every_file_belongs_to_something_that_it_lists(image_root: Path) -> None:
    """What came into the image without a package would be in no list."""
    owned = set(_owned(image_root))
    for path in image_root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        name = f"/{path.relative_to(image_root)}"
        # Debian's packages still say /bin and /lib for what is below /usr
        known = name in owned or name.removeprefix("/usr") in owned or MADE.fullmatch(name)
        assert known or (DATA.fullmatch(name) and not _program(path)), name


def test_it_tells_hash_and_licence_of_python_packages(listed: Any) -> None:
    pinned = pins(IMAGE.read_text())
    for item in listed["components"]:
        if item["purl"].startswith("pkg:pypi/"):
            assert item["licenses"], item["name"]
            (digest,) = item["hashes"]
            assert digest["alg"] == "SHA-256"
            if item["name"] != "usbdra":
                version, hashes = pinned[_normal(item["name"])]
                assert version == item["version"]
                assert digest["content"] in hashes


def test_it_tells_hash_and_licence_of_debian_packages_where_they_are_known(listed: Any) -> None:
    debs = [item for item in listed["components"] if item["purl"].startswith("pkg:deb/")]
    assert len(debs) > 40
    assert sum("licenses" in item for item in debs) > 0.9 * len(debs)
    # of the base's own packages the bed's build has no index to look them up in
    python = next(item for item in debs if item["name"] == "python3.11-minimal")
    assert python["hashes"][0]["alg"] == "SHA-256"


def test_it_tells_what_is_built_into_wheels(listed: Any) -> None:
    (cryptography,) = [item for item in listed["components"] if item["name"] == "cryptography"]
    inner = {item["name"]: item for item in cryptography["components"]}
    assert inner["openssl"]["purl"].startswith("pkg:generic/openssl@")
    assert "asn1" in inner


def _owned(root: Path) -> Iterator[str]:
    for file in (root / "var/lib/dpkg/info").glob("*.list"):
        yield from file.read_text().splitlines()
    for file in (root / "var/lib/dpkg/info").glob("*.conffiles"):
        yield from file.read_text().splitlines()
    site = root / SITE
    for each in importlib.metadata.distributions(path=[str(site)]):
        for path in each.files or ():
            place = Path(str(each.locate_file(path))).resolve()
            yield f"/{place.relative_to(root.resolve())}"


def _program(path: Path) -> bool:
    """A file that could be run; what a volume was mounted on while it was built is empty."""
    if path.is_symlink() or not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        return bool(path.stat().st_mode & 0o111) or file.read(4) == b"\x7fELF"


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()
