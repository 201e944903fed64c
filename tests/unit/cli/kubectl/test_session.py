# SPDX-License-Identifier: Apache-2.0
"""Which cluster and namespace are meant, as kubectl decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from usbdra.cli.kubectl.session import Where, namespace, where
from usbdra.errors import ConfigError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    texts = {
        "one": "contexts: [{name: x, context: {namespace: of-x}}, {name: bare}]",
        "two": "current-context: x\ncontexts: [{name: x, context: {namespace: later}}]",
        "three": "current-context: bare",
        "bad": "- [",
        "list": "[1]",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return {name: tmp_path / name for name in texts}


def test_of_several_files_the_first_that_says_something_has_the_word(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    several = ":".join(str(files[name]) for name in ("one", "two", "three"))
    monkeypatch.setenv("KUBECONFIG", f"/nonexistent:{several}")
    assert where(None) == Where(Path(several), "x", "of-x")
    assert where(files["three"]) == Where(files["three"], "bare", "default")
    assert namespace(None, None) == "of-x"
    assert namespace(None, "mine") == "mine"


def test_without_the_variable_it_is_the_home_directorys(files: dict[str, Path]) -> None:
    home = Path.home() / ".kube/config"
    with pytest.raises(ConfigError, match=f"no kubeconfig {home}; name one"):
        where(None)
    home.parent.mkdir(parents=True)
    home.write_text(files["two"].read_text())
    assert where(None) == Where(home, "x", "later")


@pytest.mark.parametrize("name", ["bad", "list"])
def test_a_file_that_is_none_is_left_to_the_client(files: dict[str, Path], name: str) -> None:
    assert where(files[name]) == Where(files[name], "", "default")
