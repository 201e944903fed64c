# SPDX-License-Identifier: Apache-2.0
"""The Go programs of the cluster bed, built once and kept outside the checkout.

Owns which programs and which versions: Kubernetes and etcd in one multi-call binary (`src/`),
containerd with its shim and `ctr`, and helm. How Go is called is in `gobuild`.
"""

import re
from pathlib import Path

from tests.bed.cache import digest, entry, tree_digest
from tests.bed.clusterbin.gobuild import GO_PACKAGE, compile_go, fetch_go, find_go

CONTAINERD = "v2.4.2"
HELM = "v3.22.0"
_SOURCE = Path(__file__).parent / "src"
_CONTAINERD_COMMANDS = ("containerd", "containerd-shim-runc-v2", "ctr")
_STRIPPED = "-s -w"


def kubernetes_version() -> str:
    """The version that `src/go.mod` names, such as "v1.37.2"."""
    text = (_SOURCE / "go.mod").read_text()
    found = re.search(r"^\s+k8s\.io/kubernetes (v\S+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{_SOURCE / 'go.mod'} names no version of k8s.io/kubernetes")
    return found[1]


def cluster_binary() -> Path:
    """The multi-call binary: etcd, the control plane, kubelet and kubectl.

    The first build compiles about 2,800 packages: 10 to 20 minutes on two cores.
    """
    version = kubernetes_version()
    flags = _version_flags(version)

    def build(folder: Path) -> None:
        compile_go(
            _go(),
            ["build", f"-ldflags={flags}", f"-o={folder / 'cluster'}", "."],
            directory=_SOURCE,
            label=f"Kubernetes {version}",
        )

    key = digest(tree_digest([_SOURCE]), flags, "v1")
    return entry("kubernetes", key, build) / "cluster"


def containerd_binaries() -> Path:
    """A folder with containerd, containerd-shim-runc-v2 and ctr, statically linked."""
    module = "github.com/containerd/containerd/v2/cmd"
    return _install("containerd", CONTAINERD, [f"{module}/{name}" for name in _CONTAINERD_COMMANDS])


def helm_binary() -> Path:
    """The helm command."""
    return _install("helm", HELM, ["helm.sh/helm/v3/cmd/helm"]) / "helm"


def _install(name: str, version: str, packages: list[str]) -> Path:
    def build(folder: Path) -> None:
        compile_go(
            _go(),
            ["install", f"-ldflags={_STRIPPED}", *(f"{path}@{version}" for path in packages)],
            directory=folder,
            label=f"{name} {version}",
            environment={"GOBIN": str(folder)},
        )

    return entry(name, digest(packages, version, "v1"), build)


def _go() -> Path:
    return find_go() or entry("go", digest(GO_PACKAGE), fetch_go) / "bin" / "go"


def _version_flags(version: str) -> str:
    """Linker flags that stamp the version: the API server refuses to start without one."""
    major, minor = version.removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join([_STRIPPED, *(f"-X {package}.{key}={value}" for key, value in stamps.items())])
