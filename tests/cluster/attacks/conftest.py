# SPDX-License-Identifier: Apache-2.0
"""One installation with everything of docs/security.md, section Hardening, for all attacks.

Another one costs a minute, so it lasts as long as this folder's tests, and so does the scene.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import driver
from tests.cluster.attacks.forger import Forger
from tests.cluster.attacks.scene import Scene, staged
from tests.cluster.attacks.users import User
from tests.cluster.bed import ClusterBed
from usbdra.controller import castore

# All else of that section is the chart's own default.
VALUES = {"requireAssignment": "true", "exporter.allowedCIDRs": "{192.168.77.0/25}"}


@pytest.fixture(scope="package")
def hardened(usb: ClusterBed) -> Iterator[ClusterBed]:
    """The driver as the hardening guide wants it; the bed's own values afterwards."""
    with driver.configured(usb, VALUES):
        yield usb


@pytest.fixture
def scene(set_up: Scene) -> Iterator[Scene]:
    """The scene for one test; pods and claims that it made are gone afterwards."""
    yield set_up
    set_up.forget()


@pytest.fixture(scope="package")
def set_up(hardened: ClusterBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The victim's stick in node a, and an attacker with the cluster's own CA."""
    with staged(hardened, forger_of(hardened, tmp_path_factory.mktemp("forged"))) as scene:
        yield scene


@pytest.fixture(scope="package")
def user(set_up: Scene) -> User:
    """Somebody of the other namespace."""
    return User(set_up)


def forger_of(bed: ClusterBed, folder: Path) -> Forger:
    """The CA that every node believes: whoever reads this Secret can be any node."""
    found = bed.api.core.read_namespaced_secret("usbdra-ca", driver.NAMESPACE)
    secret = bed.api.client.sanitize_for_serialization(found)
    return Forger(folder, castore.authorities_of(secret).signing)
