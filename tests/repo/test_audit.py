# SPDX-License-Identifier: Apache-2.0
"""What the audit makes of answers: of good ones, of bad ones, and of none."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from tests import audit
from tests.bed.apt import Archive

TODAY = date(2026, 11, 30)
REASON = "only of use against servers, and this is none"
HOLE = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}
BAD = {"name": "bad", "version": "2.0", "vulns": [HOLE]}
GOOD = {"name": "good", "version": "1.0", "vulns": []}
SKIPPED = {"name": "silent", "skip_reason": "Dependency not found on PyPI"}


def excuse(package: str = "bad", name: str = "CVE-1") -> audit.Ignore:
    return audit.Ignore(name, package, date(2026, 12, 31), REASON)


def entry(until: str, reason: str = REASON) -> str:
    return f'[[ignore]]\nid = "CVE-1"\npackage = "bad"\nuntil = {until}\nreason = "{reason}"\n'


def test_all_known_and_nothing_against_it_is_nothing_to_tell() -> None:
    assert audit.judge([GOOD], [], {"good"}) == []


def test_a_vulnerability_fails_and_says_what_fixes_it() -> None:
    assert audit.judge([BAD, GOOD], [], {"bad", "good"}) == [
        audit.Finding("bad 2.0: PYSEC-1, fixed in 2.1", fatal=True)
    ]
    unfixed = {**BAD, "vulns": [{**HOLE, "fix_versions": []}]}
    assert audit.judge([unfixed], [], {"bad"})[0].text.endswith("fixed in nothing yet")


def test_an_excuse_is_good_for_its_package_and_any_name_of_the_vulnerability() -> None:
    assert audit.judge([BAD], [excuse()], {"bad"}) == []
    assert audit.judge([BAD], [excuse(name="PYSEC-1")], {"bad"}) == []
    assert audit.judge([BAD], [excuse("other")], {"bad"})[0].fatal
    assert audit.judge([BAD], [excuse(name="CVE-2")], {"bad"})[0].fatal


def test_an_excuse_that_nothing_needs_fails_once_that_is_known() -> None:
    (finding,) = audit.judge([GOOD], [excuse("good")], {"good"})
    assert finding == audit.Finding("audit.toml: CVE-1 of good: nothing needs it", fatal=True)
    (finding,) = audit.judge([SKIPPED], [excuse("silent")], {"silent"})
    assert not finding.fatal


def test_silence_is_told_and_is_no_absolution() -> None:
    """pip-audit by itself says "No known vulnerabilities found" to this, and ends with 0."""
    (finding,) = audit.judge([SKIPPED], [], {"silent"})
    assert finding.text == ("NOT AUDITED for vulnerabilities: the registry knows none of them (1)")
    (finding,) = audit.judge([SKIPPED, GOOD], [], {"silent", "good"})
    assert finding.text.endswith("knows not silent (1)")


@pytest.mark.parametrize(
    ("until", "reason", "said"),
    [
        ("2026-11-29", REASON, "ran out"),
        ("2027-11-30", REASON, "half a year at most"),
        ("2026-12-31", "trust me", "a reason in words"),
    ],
)
def test_an_excuse_has_an_end_and_a_reason(until: str, reason: str, said: str) -> None:
    good, bad = audit.ignores(entry(until, reason), TODAY)
    assert not good
    assert bad[0].fatal
    assert said in bad[0].text
    assert audit.ignores(entry("2026-11-30"), TODAY)[0] == [
        audit.Ignore("CVE-1", "bad", TODAY, REASON)
    ]


def test_the_excuses_of_today_hold() -> None:
    text = audit.EXCUSES.read_text()
    _, bad = audit.ignores(text, date.today())
    assert not bad


def test_a_file_yanked_or_exchanged_fails() -> None:
    def item(sha256: str, **more: Any) -> dict[str, Any]:
        info = {"archive_info": {"hashes": {"sha256": sha256}}}
        return {"metadata": {"name": "Some_Name"}, "download_info": info, **more}

    wanted = {"some-name": ("1", frozenset(["aa"]))}
    assert audit.compare_served(wanted, [item("aa")]) == []
    (finding,) = audit.compare_served(wanted, [item("bb")])
    assert finding == audit.Finding("some-name 1: another file than was locked", fatal=True)
    (finding,) = audit.compare_served(wanted, [item("aa", is_yanked=True)])
    assert finding == audit.Finding("some-name 1 was yanked: make lock", fatal=True)


def test_a_package_that_debian_has_newer_is_told() -> None:
    class Lists:
        def versions(self, names: Any) -> dict[str, str]:
            return {"libssl3": "3.0.23", "dash": "1"} if set(names) else {}

    sbom = {
        "components": [
            {"name": "libssl3", "version": "3.0.22", "purl": "pkg:deb/debian/libssl3@3.0.22"},
            {"name": "dash", "version": "1", "purl": "pkg:deb/debian/dash@1"},
            {"name": "click", "version": "8", "purl": "pkg:pypi/click@8"},
        ]
    }
    assert audit.debian(sbom, cast("Archive", Lists())) == [
        audit.Finding("libssl3 3.0.22: Debian has 3.0.23", fatal=False)
    ]


def test_an_auditor_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why on stderr and nothing on stdout, as without a network."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho first >&2\necho 'no route' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    lock = tmp_path / "lock.txt"
    lock.write_text("a==1 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    for findings in (audit.advisories([lock], []), audit.served([lock])):
        (finding,) = findings
        assert finding.text.startswith("NOT AUDITED")
        assert finding.text.endswith(": no route")
        assert not finding.fatal
