# SPDX-License-Identifier: Apache-2.0
"""Settings from flags, environment and file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.searching import examples
from usbdra.config import MAX_FILE_BYTES, Settings, load, settings_keys
from usbdra.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_default_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usbdra.config.DEFAULT_FILE", Path("/nonexistent"))


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_defaults() -> None:
    assert load() == Settings()
    assert Settings().port == 3241
    assert Settings().group == "virtualization.deckhouse.io"


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, "port: 1\nplainPort: 2\nmaxPorts: 3\n")
    found = load({"port": 9, "node": None}, {"USBDRA_PORT": "8", "USBDRA_PLAIN_PORT": "7"}, file)
    assert (found.port, found.plain_port, found.max_ports) == (9, 7, 3)
    assert found.node is None


def test_every_setting_has_its_keys() -> None:
    assert settings_keys() == {
        "root": "root",
        "node": "node",
        "group": "group",
        "visibility": "visibility",
        "layout": "layout",
        "maxPorts": "max_ports",
        "forwardLowSpeed": "forward_low_speed",
        "policy": "policy",
        "listen": "listen",
        "port": "port",
        "plainPort": "plain_port",
        "allowedNodes": "allowed_nodes",
        "allowedCIDRs": "allowed_cidrs",
        "encryption": "encryption",
        "pkiDir": "pki_dir",
        "runDir": "run_dir",
        "logLevel": "log_level",
        "logFormat": "log_format",
    }


def test_values_of_the_file_are_texts_first(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "node: 007\nforwardLowSpeed: yes\nallowedCIDRs: [10.0.0.0/8, 'fd00::/8']\n"
        "listen: 10.0.0.1, ::1\npolicy: {rules: [{action: deny, device: 0781:0316}]}\n",
    )
    found = load(file=file)
    assert found.node == "007"
    assert found.forward_low_speed is True
    assert found.allowed_cidrs == ("10.0.0.0/8", "fd00::/8")
    assert found.listen == ("10.0.0.1", "::1")
    assert found.policy == {"rules": [{"action": "deny", "device": "0781:0316"}]}


def test_empty_file_is_no_settings(tmp_path: Path) -> None:
    assert load(file=write(tmp_path, "# nothing\n")) == Settings()


def test_file_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "port: 5\n")
    assert load(env={"USBDRA_CONFIG": str(file)}).port == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("forwardLowSpeeed: true", "key 'forwardLowSpeeed'; did you mean 'forwardLowSpeed'?"),
        ("xyzzy: 1", "unknown key 'xyzzy'"),
        ("port: 70000", "port: 70000 is not between 0 and 65535"),
        ("port: -1", "port: '-1' is not a whole number"),
        ("port: [1]", r"port: \['1'\] is not a whole number"),
        ("forwardLowSpeed: maybe", "'maybe' is neither true nor false"),
        ("visibility: cluster", "'cluster' is none of Cluster, Node"),
        ("allowedCIDRs: [10.0.0.1/8]", "has host bits set"),
        ("allowedCIDRs: {}", "a list is wanted"),
        ("node: ''", "node: a non-empty text is wanted"),
        ("listen: [a, '']", "listen: a non-empty text is wanted"),
        ("policy: []", "policy: a mapping is wanted"),
        ("policy: {forwardLowSpeed: true}", "beside policy"),
        ("pkiDir: \"a\\0b\"", "a path has no NUL character"),
        ("- a", "a mapping of settings is wanted"),
        ("a: [", "not YAML at line 1: "),
        ("a: b: c", "not YAML at line 1: mapping values are not allowed here"),
        (b"\xff\xfe\x00", "not YAML"),
        ("[" * 1200, "not YAML"),
        ("{[]: 1}", "not YAML"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_name(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        load(file=file)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_file_that_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        load(file=tmp_path / "missing")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load(file=write(tmp_path, b"#" * (MAX_FILE_BYTES + 1)))


def test_bad_environment_and_flags_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^USBDRA_PORT: 'tcp://10.0.0.1:3241' is not a whole"):
        load(env={"USBDRA_PORT": "tcp://10.0.0.1:3241"})
    with pytest.raises(ConfigError, match=r"^option for allowedCIDRs: 'x' does not appear to be"):
        load({"allowed_cidrs": ("x",)})
    with pytest.raises(ConfigError, match="unknown variable USBDRA_ALOWED_NODES; did you mean"):
        load(env={"USBDRA_ALOWED_NODES": "a"})


def test_variables_that_kubernetes_adds_for_a_service_are_no_settings() -> None:
    env = {"USBDRA_SERVICE_HOST": "10.0.0.1", "USBDRA_PORT_3241_TCP_PROTO": "tcp", "PATH": "/bin"}
    assert load(env=env) == Settings()


@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    text=st.binary(max_size=80) | st.text("{}[]:,-&*!|>'\"\n #ab01", max_size=80).map(str.encode)
)
def test_any_file_gives_settings_or_a_clear_error(tmp_path: Path, text: bytes) -> None:
    file = write(tmp_path, text)
    try:
        found: Settings | str = load(file=file)
    except ConfigError as error:
        found = str(error)
    assert isinstance(found, Settings) or found.startswith(f"{file}: ")


@pytest.mark.parametrize("key", ["forwardLowSpeed", "logLevel", "port"])
def test_nested_aliases_are_not_written_out(tmp_path: Path, key: str) -> None:
    """Forty levels of two aliases each: the text of the value would have 2**40 words."""
    levels = "".join(f"- &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    file = tmp_path / "config.yaml"
    file.write_text(
        f"policy:\n  rules:\n  - &a0 [x, x]\n{levels.replace('- ', '  - ')}{key}: *a39\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file=file)
    assert key in str(caught.value)
    assert len(str(caught.value)) < 200 + len(str(file))


@pytest.mark.parametrize(
    "text",
    [
        'logLevel: "\\U0015ffff"\n',
        'logLevel: "\\Uffffffff"\n',
        "%YAML 1." + "1" * 5000 + "\n--- a\n",
    ],
)
def test_numbers_that_no_letter_has_are_a_config_error(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError, match="not YAML") as caught:
        load(file=file)
    assert str(caught.value).startswith(f"{file}: ")
