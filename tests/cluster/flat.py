# SPDX-License-Identifier: Apache-2.0
"""`make install-yaml`: deploy/install.yaml and uninstall.yaml, rendered from the chart.

    python -m tests.cluster.flat [--check]

Owns the two files: nobody edits them by hand. `--check` writes nothing and ends with status 1
when they are not what the chart gives.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bed.clusterbin import helm_binary
from tests.bed.host import run
from tests.cluster.driver import CHART, NAMESPACE, ROOT

OLDEST = "1.34.0"  # Kubernetes that the chart is for, see Chart.yaml
_HOOKS = "templates/uninstall.yaml"
_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# {what}
# Rendered from deploy/helm/usbdra by `make install-yaml`: edit the chart, not this file.
"""


def rendered() -> Mapping[Path, str]:
    """The files and what the chart gives for each."""
    base = [str(helm_binary()), "template", "usbdra", str(CHART), f"--namespace={NAMESPACE}"]
    base += [f"--kube-version={OLDEST}", "--set=createNamespace=true"]
    install = _HEAD.format(what="usbdra with its defaults in the namespace usbdra.")
    uninstall = _HEAD.format(what="Run this before install.yaml is deleted (docs/operations.md).")
    return {
        ROOT / "deploy/install.yaml": install + run([*base, "--no-hooks"]),
        ROOT / "deploy/uninstall.yaml": uninstall + run([*base, f"--show-only={_HOOKS}"]),
    }


def stale() -> list[str]:
    """Names of the files that are not what the chart gives."""
    return [
        path.name
        for path, text in rendered().items()
        if not path.exists() or path.read_text() != text
    ]


def main() -> int:
    """Write or check; returns the exit status."""
    if "--check" in sys.argv[1:]:
        names = stale()
        print(f"run `make install-yaml`: {', '.join(names)}" if names else "up to date")
        return int(bool(names))
    for path, text in rendered().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
