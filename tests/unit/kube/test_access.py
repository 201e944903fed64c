# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes.certificates import certificates
from usbdra.kube import access, errors

ENV = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A service account's directory."""
    (tmp_path / "ca.crt").write_bytes((certificates().a / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("one\n")
    return tmp_path


async def test_a_service_account(pod: Path) -> None:
    found = access.from_service_account(pod, ENV)
    assert found.server == "https://10.96.0.1:443"
    assert await found.authorization() == "Bearer one"
    assert len(found.tls.get_ca_certs()) == 1


async def test_ipv6_stands_in_brackets(pod: Path) -> None:
    found = access.from_service_account(pod, {**ENV, "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert found.server == "https://[fd00::1]:443"


async def test_a_token_is_read_again_after_a_minute(pod: Path) -> None:
    clock = Clock()
    found = access.from_service_account(pod, ENV, clock)
    (pod / "token").write_text("two")
    clock.now += access.TOKEN_SECONDS - 1
    assert await found.authorization() == "Bearer one"
    clock.now += 1
    assert await found.authorization() == "Bearer two"


@pytest.mark.parametrize("harm", ["unlink", "empty"])
async def test_the_old_token_stays_while_there_is_no_new_one(pod: Path, harm: str) -> None:
    clock = Clock()
    found = access.from_service_account(pod, ENV, clock)
    (pod / "token").unlink() if harm == "unlink" else (pod / "token").write_text("")
    clock.now += access.TOKEN_SECONDS
    assert await found.authorization() == "Bearer one"


@pytest.mark.parametrize("name", ["ca.crt", "token"])
@pytest.mark.parametrize("content", [None, ""])
def test_a_missing_or_empty_file_is_named(pod: Path, name: str, content: str | None) -> None:
    (pod / name).unlink()
    if content is not None:
        (pod / name).write_text(content)
    with pytest.raises(errors.ApiForbidden, match=str(pod)):
        access.from_service_account(pod, ENV)


def test_outside_of_a_pod(pod: Path) -> None:
    with pytest.raises(errors.ApiForbidden, match="name a kubeconfig"):
        access.from_service_account(pod, {})


def test_a_pod_does_not_pay_for_the_official_client() -> None:
    program = (
        "import sys, usbdra.kube.client, usbdra.kube.access; sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def kubeconfig(folder: Path, user: dict[str, str]) -> Path:
    cluster = {
        "server": "https://api.example:6443/",
        "certificate-authority": str(certificates().a / "ca.crt"),
        "tls-server-name": "kubernetes",
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return path


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    found = await access.from_kubeconfig(kubeconfig(tmp_path, {"token": "secret"}))
    assert found.server == "https://api.example:6443"
    assert found.server_name == "kubernetes"
    assert (await found.authorization()).lower() == "bearer secret"


async def test_a_kubeconfig_with_a_certificate(tmp_path: Path) -> None:
    pair = certificates().a
    user = {"client-certificate": str(pair / "tls.crt"), "client-key": str(pair / "tls.key")}
    found = await access.from_kubeconfig(kubeconfig(tmp_path, user))
    assert await found.authorization() == ""
    assert len(found.tls.get_ca_certs()) == 1


async def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.ApiForbidden, match="nowhere"):
        await access.from_kubeconfig(tmp_path / "nowhere")


async def test_a_context_of_several_kubeconfigs(tmp_path: Path) -> None:
    one = kubeconfig(tmp_path, {"token": "secret"})
    two = tmp_path / "two"
    two.write_text(
        yaml.safe_dump(
            {
                "contexts": [{"name": "y", "context": {"cluster": "d", "user": "u"}}],
                "clusters": [{"name": "d", "cluster": {"server": "https://other.example:6443"}}],
                "current-context": "y",
            }
        )
    )
    both = Path(f"{one}:{two}")
    assert (await access.from_kubeconfig(both, "x")).server == "https://api.example:6443"
    assert (await access.from_kubeconfig(both, "y")).server == "https://other.example:6443"
    with pytest.raises(errors.ApiForbidden):
        await access.from_kubeconfig(both, "z")
