# SPDX-License-Identifier: Apache-2.0
"""The image as deploy/image/Dockerfile makes it: what is in it, what is not, who may run it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from tests.api.image import ENVIRONMENT, as_user, blob, manifest, read_json
from tests.cluster import driver
from tests.cluster.usbdra_image import NAME

# Uncompressed; a registry sends about a third. Half is Debian with its Python.
MOST_MIB = 165
# What a build needs and a running program does not.
TOOLS = ("as", "cc", "cython", "gcc", "ld", "make", "pip", "pip3", "wheel")
# What changes a system, and what somebody who broke in would look for.
ADMIN = ("apt", "apt-get", "bash", "mount", "passwd", "perl", "su", "tar")
SITE = "opt/usbdra/lib/python3.11/site-packages"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
    "clusters": [{"name": "one", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [
        {
            "name": "me",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "echo",
                    "args": [
                        '{"apiVersion": "client.authentication.k8s.io/v1",'
                        ' "kind": "ExecCredential", "status": {"token": "secret"}}'
                    ],
                    "interactiveMode": "Never",
                }
            },
        }
    ],
}


def test_any_user_runs_it_on_a_read_only_root(image_root: Path) -> None:
    said = as_user(image_root, "usbdra", "--version")
    assert said.returncode == 0, said.stderr
    assert not said.stderr
    assert said.stdout.split()[-1] == driver.VERSION


def test_every_module_finds_what_it_imports(image_root: Path) -> None:
    code = (
        "import grpc, kubernetes.aio.client, pyudev\n"
        "import importlib, pkgutil, usbdra\n"
        "names = [m.name for m in pkgutil.walk_packages(usbdra.__path__, 'usbdra.')]\n"
        "for name in names:\n"
        "    if not name.endswith('__main__'): importlib.import_module(name)\n"
        "pyudev.Context()\n"
        "print(len(names))"
    )
    said = as_user(image_root, "/opt/usbdra/bin/python", "-c", code)
    assert said.returncode == 0, said.stderr
    assert not said.stderr
    assert int(said.stdout) > 150


def test_every_shared_library_finds_what_it_links(image_root: Path) -> None:
    """Packages are taken out against dpkg's advice: nothing that is left may need them."""
    script = (
        "import pathlib, subprocess\n"
        "places = map(pathlib.Path, ('/usr/bin', '/usr/lib', '/usr/sbin', '/opt'))\n"
        "files = [f for p in places for f in p.rglob('*') if f.is_file()]\n"
        "elf = [f for f in files if f.open('rb').read(18)[:4] == b'\\x7fELF']\n"
        "loader = '/lib64/ld-linux-x86-64.so.2'\n"
        "for f in elf:\n"
        "    done = subprocess.run([loader, '--list', f], capture_output=True, text=True)\n"
        "    if 'not found' in done.stdout + done.stderr: print(f, done.stdout, done.stderr)\n"
        "print(len(elf))\n"
    )
    said = as_user(image_root, "/opt/usbdra/bin/python", "-c", script)
    assert said.returncode == 0, said.stderr
    broken = said.stdout.splitlines()
    assert int(broken.pop()) > 100
    assert not broken


def test_a_kubeconfig_is_read_with_what_is_left_of_the_client(image_root: Path) -> None:
    """The client's classes for the kinds of objects are not in the image."""
    assert not (image_root / SITE / "kubernetes/client/models/v1_pod.py").exists()
    code = (
        "import asyncio, pathlib\n"
        "from usbdra.kube.access import from_kubeconfig\n"
        "found = asyncio.run(from_kubeconfig(pathlib.Path('/tmp/config')))\n"
        "print(found.server, asyncio.run(found.authorization()))"
    )
    file = image_root / "tmp/config"
    file.write_text(json.dumps(KUBECONFIG))
    try:
        said = as_user(image_root, "/opt/usbdra/bin/python", "-c", code)
    finally:
        file.unlink()
    assert said.returncode == 0, said.stderr
    assert said.stdout == "https://192.0.2.1:6443 Bearer secret\n"


def test_nothing_of_the_build_is_left(image_root: Path) -> None:
    found = {path.name for folder in ("bin", "sbin") for path in image_root.glob(f"**/{folder}/*")}
    assert {"python3", "sh", "test"} <= found  # the last two are the chart's probes
    assert found.isdisjoint(TOOLS)
    assert found.isdisjoint(ADMIN)
    assert not list((image_root / "opt/usbdra/lib").glob("python3*/site-packages/pip*"))
    assert not list((image_root / SITE).glob("**/tests"))
    sources = ("*.pyx", "*.c", "*.h", "*.whl")
    assert not [
        path for kind in sources for path in (image_root / "opt").rglob(kind) if _ours(path)
    ]
    assert not (image_root / "facts").exists()
    assert as_user(image_root, "/opt/usbdra/bin/python", "-m", "pip").returncode == 1


def test_nothing_is_set_uid(image_root: Path) -> None:
    assert not [
        path
        for path in image_root.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000
    ]


def test_modules_are_compiled_and_need_no_look_at_their_sources(image_root: Path) -> None:
    """PEP 552: the flags after the magic number; 1 is by hash, unchecked."""
    site = image_root / SITE
    sources = list(site.rglob("*.py"))
    assert len(sources) > 1000
    for path in sources:
        compiled = path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc"
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", path
    assert len(list(site.rglob("*.pyc"))) == len(sources)


def test_files_are_readable_by_all_and_writable_by_root(image_root: Path) -> None:
    for path in (image_root / "opt/usbdra").rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            assert mode & 0o444 == 0o444, path
            assert mode & 0o022 == 0, path


def test_it_says_what_it_is(image_archive: Path) -> None:
    with tarfile.open(image_archive) as outer:
        described = manifest(outer, f"{NAME}:{driver.VERSION}")
        config = read_json(outer, blob(described["config"]))["config"]
        sizes = [layer["size"] for layer in described["layers"]]
    assert config["Entrypoint"] == ["usbdra"]
    assert config["Env"] == ENVIRONMENT
    assert "User" not in config  # the pod says who
    assert config["Labels"]["org.opencontainers.image.version"] == driver.VERSION
    assert sum(sizes) < MOST_MIB << 20, f"{sum(sizes) >> 20} MiB"
    # Debian, the environment, the program, the list: an update of the program alone is the last two
    assert len(sizes) == 4
    assert sum(sizes[2:]) < 6 << 20


def _ours(path: Path) -> bool:
    return "usbdra" in path.parts[path.parts.index("opt") + 2 :]
