# SPDX-License-Identifier: Apache-2.0
"""A Prometheus of its own, Debian's package, in a network namespace; asked from outside.

Owns its process, its data and its configuration. Knows nothing of what it scrapes.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.bed.process import spawn, stop
from tests.cluster.netns import Door, command_inside

PORT = 9090
Job = Mapping[str, Any]


class Prometheus:
    """Scrapes `jobs` each second; `rules` is a file of alerts. Use as a context."""

    def __init__(self, namespace: str, folder: Path, jobs: Sequence[Job], rules: Path) -> None:
        self._namespace = namespace
        self._folder = folder
        times = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {"global": times, "rule_files": [str(rules)], "scrape_configs": list(jobs)}
        folder.mkdir()
        self.config = folder / "prometheus.yml"
        self.config.write_text(yaml.safe_dump(config))
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._door: Door | None = None

    def __enter__(self) -> Self:
        flags = {
            "config.file": self.config,
            "storage.tsdb.path": self._folder / "data",
            "web.listen-address": f"127.0.0.1:{PORT}",
            "log.level": "warn",
        }
        words = ["prometheus", *(f"--{name}={value}" for name, value in flags.items())]
        with self.log.open("wb") as log:
            self._process = spawn(command_inside(self._namespace, words), stdout=log)
        self._door = Door(self._namespace, ("127.0.0.1", PORT))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._door is not None
        self._door.close()
        stop(self._process)

    def get(self, path: str, **query: str) -> Any:
        """`data` of an answer of its API. Raises OSError while it does not answer."""
        assert self._door is not None
        url = f"http://127.0.0.1:{self._door.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query, `metric` and `value` each, NaN left out."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return [one for one in found if one["value"][1] != "NaN"]

    def value(self, expression: str) -> float:
        """The one number that a query gives."""
        (one,) = self.query(expression)
        return float(one["value"][1])

    def until(self, what: str, done: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until `done` says so; what it raises means not yet."""
        deadline = time.monotonic() + seconds
        problem: object = None
        while time.monotonic() < deadline:
            try:
                if done():
                    return
            except (OSError, ValueError) as error:
                problem = error
            time.sleep(0.2)
        targets = self.get("targets")["activeTargets"]
        states = [(t["labels"]["job"], t["health"], t["lastError"]) for t in targets]
        raise AssertionError(f"not {what} ({problem}); {states}; {self.log.read_text()[-2000:]}")
