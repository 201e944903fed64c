# SPDX-License-Identifier: Apache-2.0
"""Writes what an image holds as a CycloneDX document: Debian's packages, Python's, what is in them.

    python3 sbom.py [--root DIRECTORY] [--facts DIRECTORY] > usbdra.cdx.json

Owns the form of that document. Runs in the image's build with the standard library alone, and reads
the installed system itself (dpkg's status, dist-info), never what was asked for. What the system
does not tell, the hashes of the files that packages came from, is in the facts: `debs`, which is
`apt-cache show` of all packages, and `*.json`, the reports of pip. The same image gives the same
bytes: no time, no random number.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATUS = "var/lib/dpkg/status"
SITE = "opt/usbdra/lib/python3*/site-packages"
PROGRAM = "usbdra"
FORMAT = "1.6"  # of CycloneDX
MOST_LICENSE = 100  # characters; longer is the licence's text, not its name

Component = dict[str, Any]


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Paragraphs of deb822(5), first lines of fields alone."""
    for paragraph in re.split(r"\n\s*\n", text):
        if fields := dict(re.findall(r"^([A-Za-z0-9-]+): *(.*)$", paragraph, re.MULTILINE)):
            yield fields


def sha256(value: str | None) -> list[dict[str, str]]:
    """A component's hashes; none where it is not known."""
    return [{"alg": "SHA-256", "content": value}] if value else []


def component(kind: str, name: str, version: str, purl: str, **more: Any) -> Component:
    """One component; of what else is told, what is not empty."""
    known = {key: value for key, value in more.items() if value}
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, **known}


# -- Debian ---------------------------------------------------------------------------------------


def debian(root: Path, debs: str) -> Iterator[Component]:
    """What dpkg has installed below a root. debs: `apt-cache show` of it, or nothing."""
    hashes = {_same(fields): fields.get("SHA256") for fields in stanzas(debs)}
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', (root / "etc/os-release").read_text(), re.M))
    for fields in stanzas((root / STATUS).read_text()):
        if not fields["Status"].endswith(" installed"):
            continue
        name, version = fields["Package"], fields["Version"]
        about = f"arch={fields['Architecture']}&distro={release['ID']}-{release['VERSION_ID']}"
        if source := fields.get("Source"):  # NAME or NAME (VERSION); advisories go by it
            upstream = re.sub(r" [(](.*)[)]", r"@\1", source)
            about += f"&upstream={quote(upstream, safe=':')}"
        yield component(
            "library",
            name,
            version,
            f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe=':')}?{about}",
            licenses=copyright_licenses(root / "usr/share/doc" / name / "copyright"),
            hashes=sha256(hashes.get(_same(fields))),
        )


def _same(fields: dict[str, str]) -> tuple[str, str, str]:
    return fields["Package"], fields["Version"], fields["Architecture"]


def copyright_licenses(file: Path) -> list[dict[str, Any]]:
    """Licences that a package's copyright file names: by its fields, else by the texts it means."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return []
    names = set(re.findall(r"^License: *(\S.*?)\s*$", text, re.MULTILINE))
    if not re.match(r"Format:", text):
        names = set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9+])", text))
    return [{"license": {"name": name}} for name in sorted(names)]


# -- Python ---------------------------------------------------------------------------------------


def python(root: Path, reports: list[Any]) -> Iterator[Component]:
    """What is installed in the program's environment below a root."""
    hashes = {
        item["metadata"]["name"]: item["download_info"]["archive_info"]["hash"]
        for report in reports
        for item in report["install"]
    }
    for info in root.glob(f"{SITE}/*.dist-info"):
        about = Parser().parsestr((info / "METADATA").read_text())
        name, version = about["Name"], about["Version"]
        purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{quote(version)}"
        missing, listed = left_out(info)
        notes = f"{missing} of the wheel's {listed} files are not in this image"
        yield component(
            "application" if name == PROGRAM else "library",
            name,
            version,
            purl,
            licenses=python_licenses(about),
            hashes=sha256(hashes.get(name, "").removeprefix("sha256=")),
            components=sorted(within(info, purl), key=_ref),
            pedigree={"notes": notes} if missing else None,
        )


def python_licenses(about: Message) -> list[dict[str, Any]]:
    """A distribution's licence: an SPDX expression (PEP 639), else the name that it gives."""
    if expression := about["License-Expression"]:
        return [{"expression": expression}]
    name = about["License"] or ""
    if not name or "\n" in name or len(name) > MOST_LICENSE:
        named = [text for text in about.get_all("Classifier", []) if text.startswith("License ::")]
        name = named[0].rpartition(" :: ")[2] if named else ""
    return [{"license": {"name": name}}] if name else []


def left_out(info: Path) -> tuple[int, int]:
    """(files of a wheel that are not installed, all that it brought), compiled ones apart."""
    with (info / "RECORD").open(newline="") as lines:
        names = [row[0] for row in csv.reader(lines) if not row[0].endswith(".pyc")]
    return sum(not (info.parent / name).exists() for name in names), len(names)


def within(info: Path, owner: str) -> Iterator[Component]:
    """What a wheel says was built into it (PEP 770): crates, OpenSSL."""
    found: dict[str, Component] = {}
    for file in sorted(info.glob("sboms/*.json")):
        for item in json.loads(file.read_text()).get("components", []):
            # Parts that came from the wheel's own sources name a folder of the build.
            purl = item.get("purl", "").partition("?download_url=file:")[0]
            inner = {key: item[key] for key in ("licenses", "hashes") if key in item}
            place = purl or f"{item['name']}@{item['version']}"
            found[place] = {
                **component("library", item["name"], item["version"], purl, **inner),
                "bom-ref": f"{owner}#{place}",
            }
    for item in found.values():
        yield {key: value for key, value in item.items() if value}


# -- the document ---------------------------------------------------------------------------------


def _ref(item: Component) -> str:
    return str(item["bom-ref"])


def document(root: Path, facts: Path) -> dict[str, Any]:
    """All of it. Raises OSError where the root holds no Debian system, StopIteration no program."""
    debs = facts / "debs"
    reports = [json.loads(file.read_text()) for file in sorted(facts.glob("*.json"))]
    packages = list(debian(root, debs.read_text() if debs.exists() else ""))
    distributions = list(python(root, reports))
    program = next(item for item in distributions if item["name"] == PROGRAM)
    parts = sorted([*packages, *distributions], key=_ref)
    image = {
        "type": "container",
        "bom-ref": "image",
        "name": PROGRAM,
        "version": program["version"],
        "licenses": program["licenses"],
    }
    content = json.dumps([image, parts], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{FORMAT}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, digest).urn,
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": image},
        "components": parts,
        "dependencies": [{"ref": "image", "dependsOn": [_ref(item) for item in parts]}],
    }


def main() -> None:
    """Read a system, print its document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--facts", type=Path, default=Path("/nonexistent"))
    options = parser.parse_args()
    json.dump(document(options.root, options.facts), sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
