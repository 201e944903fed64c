# SPDX-License-Identifier: Apache-2.0
"""Asks what is known against the versions that the project has locked, and says what nobody knows.

    python -m tests.audit [--strict] [--output FILE]

Owns the judgement: what fails, what is told. Three questions: is a vulnerability known of a locked
Python package (pip-audit, PyPI's advisories); has a locked file of the image been yanked or
exchanged (pip); has Debian a newer version of a package in the built image (apt).

Always a failure: a vulnerability that audit.toml does not excuse, an excuse that has run out or is
of no use, a file yanked or exchanged. Told, and with --strict a failure too: an answer that could
not be had, for silence is no absolution; a package of Debian that a new build would bring, for
that comes by the calendar and is not the fault of who runs this.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bed.apt import Archive
from tests.bed.errors import BedError
from tests.bed.wheel import PLATFORMS, PYTHON
from tests.cluster import driver
from tests.cluster.usbdra_image import usbdra_sbom
from tests.locks import BUILD, IMAGE, TOOLS, pins

EXCUSES = Path(__file__).with_name("audit.toml")
LONGEST_EXCUSE = timedelta(days=184)
ASK_SECONDS = 120


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fatal` without --strict as well."""

    text: str
    fatal: bool


@dataclass(frozen=True)
class Ignore:
    """An excuse of audit.toml."""

    id: str
    package: str
    until: date
    reason: str


def ignores(text: str, today: date) -> tuple[list[Ignore], list[Finding]]:
    """The excuses that hold today, and what is wrong with the others."""
    good, bad = [], []
    for entry in tomllib.loads(text).get("ignore", []):
        item = Ignore(**entry)
        if item.until < today:
            bad.append(Finding(f"audit.toml: {item.id} of {item.package}: ran out", fatal=True))
        elif item.until > today + LONGEST_EXCUSE or len(item.reason) < 20:
            what = "half a year at most, and a reason in words"
            bad.append(Finding(f"audit.toml: {item.id} of {item.package}: {what}", fatal=True))
        else:
            good.append(item)
    return good, bad


def judge(
    answers: Iterable[Mapping[str, Any]], excuses: Sequence[Ignore], asked: Iterable[str]
) -> list[Finding]:
    """What pip-audit's answers mean, one for each package that it was asked about."""
    findings, used, answered = [], set(), set()
    for item in answers:
        if "skip_reason" in item:  # PyPI has no such page: nothing is known, good or bad
            continue
        answered.add(item["name"])
        for hole in item["vulns"]:
            names = {hole["id"], *hole.get("aliases", [])}
            known = [e for e in excuses if e.package == item["name"] and e.id in names]
            used.update(known)
            if not known:
                fixed = ", ".join(hole["fix_versions"]) or "nothing yet"
                text = f"{item['name']} {item['version']}: {hole['id']}, fixed in {fixed}"
                findings.append(Finding(text, fatal=True))
    for excuse in excuses:
        if excuse.package in answered and excuse not in used:
            text = f"audit.toml: {excuse.id} of {excuse.package}: nothing needs it"
            findings.append(Finding(text, fatal=True))
    missing = sorted(set(asked) - answered)
    if missing:
        some = "none of them" if not answered else f"not {', '.join(missing)}"
        text = f"NOT AUDITED for vulnerabilities: the registry knows {some} ({len(missing)})"
        findings.append(Finding(text, fatal=False))
    return findings


def advisories(files: Iterable[Path], excuses: Sequence[Ignore]) -> list[Finding]:
    """What PyPI knows against the versions in some locks."""
    answers: dict[str, Any] = {}
    asked: set[str] = set()
    for file in files:
        asked |= pins(file.read_text()).keys()
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(file), "--disable-pip"]
        command += ["--require-hashes", "--format=json", "--progress-spinner=off"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False
            )
            found = json.loads(done.stdout)["dependencies"]
        except subprocess.TimeoutExpired:
            return [Finding("NOT AUDITED for vulnerabilities: no answer in time", fatal=False)]
        except json.JSONDecodeError:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            return [Finding(f"NOT AUDITED for vulnerabilities: {last}", fatal=False)]
        answers.update((item["name"], item) for item in found)
    # a package for another system is in the lock, and pip-audit leaves it out
    return judge(answers.values(), excuses, asked & answers.keys())


def served(files: Iterable[Path]) -> list[Finding]:
    """Whether the registry still serves what the image's locks name, on amd64."""
    wanted = {name: lock for file in files for name, lock in pins(file.read_text()).items()}
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"]
    command += ["--no-deps", "--ignore-installed", "--only-binary=:all:", "--target=/nonexistent"]
    command += [f"--python-version={PYTHON}", *(f"--platform={name}" for name in PLATFORMS)]
    command += [f"{name}=={version}" for name, (version, _) in wanted.items()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return [Finding(f"NOT AUDITED for yanked files: {last}", fatal=False)]
    return compare_served(wanted, json.loads(done.stdout)["install"])


def compare_served(
    wanted: Mapping[str, tuple[str, frozenset[str]]], items: Iterable[Mapping[str, Any]]
) -> list[Finding]:
    """Locks beside pip's report of what it would install."""
    findings = []
    for item in items:
        name = re.sub("[-_.]+", "-", item["metadata"]["name"]).lower()
        version, hashes = wanted[name]
        if item.get("is_yanked"):
            findings.append(Finding(f"{name} {version} was yanked: make lock", fatal=True))
        elif item["download_info"]["archive_info"]["hashes"]["sha256"] not in hashes:
            findings.append(Finding(f"{name} {version}: another file than was locked", fatal=True))
    return findings


def debian(sbom: Mapping[str, Any], archive: Archive) -> list[Finding]:
    """Packages of an image of which the archive, its security suite included, has a newer one."""
    debs = [item for item in sbom["components"] if item["purl"].startswith("pkg:deb/")]
    newest = archive.versions(item["name"] for item in debs)
    return [
        Finding(f"{item['name']} {item['version']}: Debian has {newest[item['name']]}", fatal=False)
        for item in debs
        if newest.get(item["name"], item["version"]) != item["version"]
    ]


def main(argv: Sequence[str]) -> int:
    """Ask, print, and return 1 where the answers are not good enough."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--strict", action="store_true", help="fail on what is merely told, too")
    parser.add_argument("--output", type=Path, help="write the findings there, a line each")
    options = parser.parse_args(argv)
    excuses, findings = ignores(EXCUSES.read_text(), datetime.now(UTC).date())
    findings += advisories((IMAGE, BUILD, TOOLS), excuses) + served((IMAGE, BUILD))
    try:
        archive = Archive()
        if not archive.refresh():
            raise BedError("the archive's lists could not be fetched")
        sbom = json.loads(usbdra_sbom(driver.VERSION).read_text())
        findings += debian(sbom, archive)
    except BedError as error:
        findings.append(Finding(f"NOT AUDITED for updates of Debian: {error}", fatal=False))
    report = "".join(f"audit: {finding.text}\n" for finding in findings)
    sys.stdout.write(report or "audit: nothing known against what is locked and built\n")
    if options.output:
        options.output.write_text(report)
    return int(any(finding.fatal or options.strict for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
