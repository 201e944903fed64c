# SPDX-License-Identifier: Apache-2.0
"""A private view of the Debian archive, so a Debian or an Ubuntu host gives the same nodes.

Owns the sources, package lists and downloads of Debian bookworm in the cache; the host's own
apt state is only read (mirror, proxies, certificates), never changed.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.bed.cache import cache_root, locked
from tests.bed.errors import BedError, HostError
from tests.bed.host import run
from tests.bed.progress import say, step

SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LISTS_FRESH_S = 24 * 3600


@cache
def mirrors() -> tuple[str, str]:
    """(main archive, security archive) that this host already uses, or Debian's own.

    An Ubuntu host has no Debian mirror in its sources and gets the public ones.
    """
    text = ""
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if path.suffix in (".list", ".sources") and path.is_file():
            text += re.sub(r"^\s*#.*$", "", path.read_text(errors="replace"), flags=re.M) + "\n"
    urls = re.findall(r"\bhttps?://\S+", text)
    main = [u for u in urls if re.search(r"/debian/?$", u)]
    security = [u for u in urls if re.search(r"debian-security/?$", u)]
    return (
        main[0] if main else "http://deb.debian.org/debian",
        security[0] if security else "http://deb.debian.org/debian-security",
    )


def sources() -> list[str]:
    """One-line sources of the nodes' distribution."""
    main, security = mirrors()
    return [
        f"deb [signed-by={KEYRING}] {main} {SUITE} main",
        f"deb [signed-by={KEYRING}] {main} {SUITE}-updates main",
        f"deb [signed-by={KEYRING}] {security} {SUITE}-security main",
    ]


@cache
def acquire_options() -> list[str]:
    """The host's own transport settings (proxies, certificates, date checks), as apt options."""
    wanted = re.compile(
        r"^Acquire::(http|https|Check-Valid-Until|Check-Date|Retries|ForceIPv4)(::|\s)", re.I
    )
    lines = run(["apt-config", "dump", "Acquire"]).splitlines()
    return [line.rstrip(";") for line in lines if wanted.match(line) and not line.endswith('"";')]


@dataclass(frozen=True)
class Package:
    """One package version of the archive; depends as apt prints it."""

    name: str
    version: str
    depends: str


class Archive:
    """apt on private lists under the cache."""

    def __init__(self) -> None:
        self.root = cache_root() / "apt" / SUITE

    def _options(self) -> list[str]:
        root = self.root
        return [
            "-oAPT::Architecture=amd64",
            "-oAPT::Architectures=amd64",
            f"-oDir::Etc::SourceList={root}/sources.list",
            "-oDir::Etc::SourceParts=/dev/null",
            "-oDir::Etc::Preferences=/dev/null",
            "-oDir::Etc::PreferencesParts=/dev/null",
            f"-oDir::State::Lists={root}/lists",
            f"-oDir::State::Status={root}/status",
            f"-oDir::Cache={root}/cache",
            "-oAPT::Sandbox::User=root",
        ]

    def refresh(self) -> bool:
        """Fetch the package lists unless they are fresh; old lists do when the net is away.

        Returns whether they are fresh now.
        """
        stamp = self.root / "stamp"
        wanted = "\n".join(sources()) + "\n"
        with locked(self.root / "apt.lock"):
            known = stamp.exists() and (self.root / "sources.list").read_text() == wanted
            if known and time.time() - stamp.stat().st_mtime < LISTS_FRESH_S:
                return True
            for folder in ("lists/partial", "cache/archives/partial"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            (self.root / "sources.list").write_text(wanted)
            (self.root / "status").touch()
            try:
                with step(f"fetching Debian {SUITE} package lists"):
                    run(["apt-get", *self._options(), "-qq", "update"], timeout=300)
            except HostError:
                if not known:
                    raise
                say("package lists not refreshed; using the ones of the last time")
                return False
            stamp.touch()
            return True

    def newest(self, name: str) -> Package:
        """Newest version of a package. Raises BedError when the archive has none."""
        text = run(["apt-cache", *self._options(), "--no-all-versions", "show", name])
        fields = dict(re.findall(r"^(\w+): (.*)$", text, flags=re.M))
        if fields.get("Package") != name:
            raise BedError(f"{name} is not in Debian {SUITE}")
        return Package(name, fields["Version"], fields.get("Depends", ""))

    def versions(self, names: Iterable[str]) -> dict[str, str]:
        """Newest version of each package. Raises HostError when the archive has one no more."""
        text = run(["apt-cache", *self._options(), "--no-all-versions", "show", *sorted(names)])
        return dict(re.findall(r"^Package: (.*)\n(?:.+\n)*?Version: (.*)$", text, flags=re.M))

    def download(self, name: str, version: str, folder: Path) -> Path:
        """Download one package file into folder, checked by apt; returns its path."""
        run(["apt-get", *self._options(), "-qq", "download", f"{name}={version}"], cwd=folder)
        found = sorted(folder.glob(f"{name}_*.deb"))
        if len(found) != 1:
            raise BedError(f"apt-get download {name} left {len(found)} files in {folder}")
        return found[0]

    def download_for(self, status: Path, names: Iterable[str], folder: Path) -> None:
        """Download packages and all they need beyond what a dpkg status file says is installed."""
        self._download(status, folder, "install", *names)

    def download_upgrades(self, status: Path, folder: Path) -> None:
        """Download the newer versions of what a dpkg status file says is installed."""
        self._download(status, folder, "upgrade")

    def _download(self, status: Path, folder: Path, *words: str) -> None:
        (folder / "partial").mkdir(parents=True, exist_ok=True)
        places = [f"-oDir::State::Status={status}", f"-oDir::Cache::Archives={folder}"]
        command = ["apt-get", *self._options(), *places, "-qq", "--yes", "--no-install-recommends"]
        run([*command, "--download-only", *words], timeout=900)
