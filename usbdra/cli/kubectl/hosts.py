# SPDX-License-Identifier: Apache-2.0
"""What `kubectl usb exporter` does: a host's object, its request approved, its certificate fetched.

Owns the calls. A key that is made here is written where the user said and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from usbdra.cli.kubectl.views import condition
from usbdra.errors import ConfigError, DeviceBusy, NotFound, OutOfTime, Refused
from usbdra.kube import errors, signing
from usbdra.kube.custom import HOST_SIGNER, Contract
from usbdra.kube.types import CONFIG_MAP, CSR, Object
from usbdra.types import outside_node

if TYPE_CHECKING:
    from usbdra.kube.client import KubeClient

BUNDLE, BUNDLE_KEY = "usbdra-trust", "ca.crt"
MANAGER = "kubectl-usb"
ANSWER_SECONDS = 30.0
"""For the controller, which signs at once."""


@dataclass(frozen=True, slots=True)
class Made:
    """A key that was made here, as PEM, and the request for it."""

    key: bytes
    pem: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """PEM: the certificate, and the CAs to believe."""

    cert: bytes
    ca: bytes

    @property
    def bundle(self) -> bytes:
        """Both, as `usbdra pki accept` takes them."""
        return self.cert.rstrip() + b"\n" + self.ca


def read(host: str, file: BinaryIO) -> bytes:
    """The request in a file. Raises ConfigError when it is not one of this host."""
    from usbdra.pki.request import MAX_REQUEST, read_peer_request

    pem = file.read(MAX_REQUEST + 1)
    try:
        found = read_peer_request(pem)
    except Refused as error:
        raise ConfigError(f"{file.name}: {error}") from error
    if found.peer != outside_node(host):
        raise ConfigError(f"{file.name} is a request of {found.peer}, not of host {host}")
    return pem


def make(host: str) -> Made:
    """A new key and its request."""
    from usbdra.pki import authority
    from usbdra.pki.request import make_peer_request

    key = authority.new_key()
    return Made(authority.key_pem(key), make_peer_request(key, outside_node(host)))


async def put(client: KubeClient, names: Contract, host: str, address: str | None) -> None:
    """Make the host's object, or give it this address. Raises ConfigError, Refused, ApiError."""
    if address is None:
        try:
            await client.get(names.host, host)
        except errors.ApiNotFound as error:
            raise ConfigError(f"host {host} is new: give its --address") from error
        return
    body = {"metadata": {"name": host}, "spec": {"address": address}}
    try:
        await client.apply(names.host, body, manager=MANAGER)
    except errors.ApiNotFound as error:
        raise Refused(
            "this cluster has no kind USBExporterHost; outsideHosts.enabled of the chart makes it"
        ) from error


async def signed(
    client: KubeClient, names: Contract, host: str, pem: bytes, namespace: str
) -> Signed:
    """Have a request approved, with the caller's rights, and signed by the controller.

    Raises Refused with the controller's reason, OutOfTime, ApiError.
    """
    from usbdra.slices.limits import digest

    name = f"usbdra-host-{host}-{digest(pem.decode('ascii', 'replace'), str(_now()))}"
    made = await signing.create(client, name, pem, names.key(HOST_SIGNER))
    approval = {
        "type": "Approved",
        "status": "True",
        "reason": "ExporterAdded",
        "message": f"by kubectl usb exporter add {host}",
    }
    status = {**(made.get("status") or {}), "conditions": [approval]}
    await client.replace(CSR, {**made, "status": status}, subresource="approval")
    try:
        cert = await signing.answer(client, name, ANSWER_SECONDS)
    except TimeoutError as error:
        raise OutOfTime(
            f"nobody signed request {name} within {ANSWER_SECONDS:.0f} s; is usbdra controller "
            "running, with outsideHosts.enabled?"
        ) from error
    # Now it is there: a CA is published before it signs.
    trust = await client.get(CONFIG_MAP, BUNDLE, namespace)
    return Signed(cert, str((trust.get("data") or {}).get(BUNDLE_KEY, "")).encode())


async def require_unused(client: KubeClient, names: Contract, host: str) -> None:
    """Raises DeviceBusy when somebody has a device of the host, ApiError."""
    listed = await client.list(names.node_device, fields=f"status.host={host}")
    for item in listed.get("items") or ():
        found = condition(item, "Attached")
        if found["status"] == "True":
            name = str(item["metadata"]["name"])
            raise DeviceBusy(name, f"{found['message']}; --force removes the host all the same")


async def remove(client: KubeClient, names: Contract, host: str) -> None:
    """Delete the host's object; its slices go with it. Raises NotFound, ApiError."""
    try:
        await client.get(names.host, host)
    except errors.ApiNotFound as error:
        raise NotFound(f"there is no host {host}; see kubectl usb exporter list") from error
    await client.delete(names.host, host)


def write_files(directory: Path, key: bytes, found: Signed) -> None:
    """What the host is to have, in a directory only its owner reads. Raises ConfigError."""
    from usbdra.pki import files

    files.write_new(
        directory,
        {files.NODE_KEY: key, files.NODE_CERT: found.cert, files.CA_CERT: found.ca},
        force=False,
    )


def row(item: Object, wide: bool) -> list[str]:
    """A host as a row of a list."""
    status = item.get("status") or {}
    ready = condition(item, "Ready")
    state = ready["reason"] if ready["status"] == "False" else ready["status"]
    found = [
        str(item["metadata"]["name"]),
        str((item.get("spec") or {}).get("address", "")),
        state,
        str(status.get("devices", "")),
        str(status.get("certificateUntil", "")),
    ]
    return [*found, ready["message"]] if wide else found


def full_name(item: Object, names: Contract) -> str:
    """KIND.GROUP/NAME."""
    return f"{names.host.kind.lower()}.{names.group}/{item['metadata']['name']}"


def _now() -> int:
    import time

    return time.time_ns()
