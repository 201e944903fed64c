# SPDX-License-Identifier: Apache-2.0
"""The image's files agree with the project: exact files by hash, one pinned base, its stages."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.locks import BUILD, IMAGE, ROOT, TOOLS, pins

SAID = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SAID["project"]
EXTRAS = PROJECT["optional-dependencies"]
RUNTIME = [*PROJECT["dependencies"], *EXTRAS["cluster"], *EXTRAS["otel"]]
# What `make lock` and `make flame` install for themselves, exactly, is in no lock.
GROUPS = [
    item
    for name, items in SAID["dependency-groups"].items()
    for item in items
    if name not in ("lock", "flame")
]
DOCKERFILE = (ROOT / "deploy/image/Dockerfile").read_text()


def load(name: str) -> ModuleType:
    """A program of deploy/image, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"deploy/image/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("file", "requirements"),
    [
        (IMAGE, RUNTIME),
        (BUILD, SAID["build-system"]["requires"]),
        (TOOLS, [*RUNTIME, *GROUPS]),
    ],
    ids=["image", "build", "tests"],
)
def test_the_locked_versions_are_those_that_the_project_allows(
    file: Path, requirements: list[str]
) -> None:
    found = pins(file.read_text())
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            version, hashes = found[canonicalize_name(requirement.name)]
            assert version in requirement.specifier, f"make lock: {text}"
            assert hashes


def test_every_line_of_a_lock_has_a_hash() -> None:
    for file in (IMAGE, BUILD, TOOLS):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        named = [line for line in lines if not line.startswith(" ")]
        assert len(named) == len(pins(file.read_text()))
        assert all(line.endswith("\\") for line in named)


def test_tests_run_on_the_versions_that_the_image_has() -> None:
    tools = pins(TOOLS.read_text())
    for name, (version, hashes) in pins(IMAGE.read_text()).items():
        assert tools[name][0] == version
        assert hashes <= tools[name][1]


def test_a_lock_has_what_its_packages_need() -> None:
    """The image installs without resolving: what one of them needs must be a line of its own."""
    from importlib.metadata import PackageNotFoundError, requires

    found = pins(IMAGE.read_text())
    environment = {"python_version": "3.11", "python_full_version": "3.11.2", "extra": ""}
    for name in found:
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            pytest.fail(f"{name} is locked and not installed: make build")
        for text in needed:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                other = canonicalize_name(requirement.name)
                assert found[other][0] in requirement.specifier, f"{name} needs {text}"


def test_machines_get_one_lock_or_none() -> None:
    lock = load("lock")
    one = {"a": lock.Locked("1", frozenset(["x"])), "b": lock.Locked("2", frozenset(["y"]))}
    other: dict[str, Any] = {**one, "a": lock.Locked("1", frozenset(["z"]))}
    assert lock.merge({"p": one, "q": other})["a"] == lock.Locked("1", frozenset(["x", "z"]))
    with pytest.raises(ValueError, match="a: 1, but 3 on q"):
        lock.merge({"p": one, "q": {**one, "a": lock.Locked("3", frozenset())}})
    with pytest.raises(ValueError, match="not on q: b"):
        lock.merge({"p": one, "q": {"a": one["a"]}})


def test_the_build_installs_what_is_locked_and_nothing_else() -> None:
    installs = re.findall(r"pip --python \S+ install ((?:.|\\\n)*?)(?: \\\n &&|\n)", DOCKERFILE)
    assert len(installs) == 3
    for words in installs:
        assert "--no-deps" in words
        assert "--require-hashes" in words or "--no-index" in words
    assert DOCKERFILE.count("--only-binary :all:") == 2
    assert "--no-build-isolation" in DOCKERFILE  # else pip would fetch the newest of build.txt


def test_the_base_is_pinned_by_tag_and_digest() -> None:
    assert re.search(r"^ARG BASE=docker\.io/library/debian:bookworm-\d{8}-slim$", DOCKERFILE, re.M)
    assert re.search(r"^ARG DIGEST=@sha256:[0-9a-f]{64}$", DOCKERFILE, re.M)
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.M)
    froms = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert set(froms) - set(stages) == {"${BASE}${DIGEST}", "scratch"}
    assert f"ARG VERSION={PROJECT['version']}\n" in DOCKERFILE


def test_the_base_gets_its_security_updates_in_each_build() -> None:
    (stage,) = re.findall(r"AS packages\n((?:.|\n)*?)\nFROM", DOCKERFILE)
    assert re.search(r"apt-get update.*\n && apt-get upgrade --yes", stage)


def test_what_the_build_copies_is_in_its_context() -> None:
    context = (ROOT / ".dockerignore").read_text().splitlines()
    for words in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M):
        for name in words.split():
            assert f"!{name}" in context
            assert (ROOT / name).exists()
