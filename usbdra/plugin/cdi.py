# SPDX-License-Identifier: Apache-2.0
"""A claim as a CDI specification, by which the container runtime gives its devices.

Owns the content of the spec file. Pure: plugin/files.py writes it. One spec a claim, one CDI
device for each allocated device, so that a container that asks for one request gets that alone.
Source: tags.cncf.io/container-device-interface v1.1.0, SPEC.md and pkg/cdi/container-edits.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from usbdra.plugin import layout, metadata
from usbdra.state.claims import ClaimRecord, ClaimRef, ClaimSchema, DeviceRecord, Route
from usbdra.types import ClaimUid

CDI_VERSION = "0.6.0"
"""Lowest that knows annotations; containerd 1.7 and later read it."""

CLASS = "claim"


def device_id(driver: str, uid: ClaimUid, device: DeviceRecord) -> str:
    """The fully qualified CDI name of one device of a claim."""
    return f"{driver}/{CLASS}={_device_name(uid, device)}"


def file_name(driver: str, uid: ClaimUid) -> str:
    """The spec's file name in the CDI directory."""
    return f"{driver}_{CLASS}_{uid}.json"


def uid_of_file(driver: str, name: str) -> ClaimUid | None:
    """The claim a file of the CDI directory is for; None when it is not one of ours."""
    prefix, suffix = f"{driver}_{CLASS}_", ".json"
    if name.startswith(prefix) and name.endswith(suffix):
        return ClaimUid(name[len(prefix) : -len(suffix)])
    return None


def build_spec(driver: str, record: ClaimRecord, claim_dir: PurePosixPath) -> dict[str, Any]:
    """The CDI spec of a claim whose devices are held.

    claim_dir: the claim's host directory (plugin/files.py), which holds the links and metadata
    that are mounted. The record goes along as an annotation: from it the node recovers when its
    own records cannot be read. Raises ValueError when parameters in the record are damaged.
    """
    return {
        "cdiVersion": CDI_VERSION,
        "kind": f"{driver}/{CLASS}",
        "annotations": {_annotation(driver): _record_text(record)},
        "devices": [
            {
                "name": _device_name(record.ref.uid, device),
                "containerEdits": _edits(driver, record.ref, device, claim_dir),
            }
            for device in record.devices
        ],
    }


def _record_text(record: ClaimRecord) -> str:
    """Keys in order: a record that was read back from disk gives the same text."""
    return json.dumps(ClaimSchema().encode(record), sort_keys=True)


def read_record(driver: str, spec: Any) -> ClaimRecord:
    """The record a spec was made from. Raises ValueError when the spec is not one of ours."""
    if not isinstance(spec, dict) or not isinstance(spec.get("annotations"), dict):
        raise ValueError("CDI spec has no annotations")
    text = spec["annotations"].get(_annotation(driver))
    if not isinstance(text, str):
        raise ValueError(f"CDI spec has no annotation {_annotation(driver)}")
    return ClaimSchema().decode(ClaimSchema.version, json.loads(text))


def _annotation(driver: str) -> str:
    return f"{driver}/record-v{ClaimSchema.version}"


def _device_name(uid: ClaimUid, device: DeviceRecord) -> str:
    return f"{uid}-{device.base_request}-{device.slot}"


def _edits(
    driver: str, ref: ClaimRef, device: DeviceRecord, claim_dir: PurePosixPath
) -> dict[str, Any]:
    edits: dict[str, Any] = {
        "env": layout.environment(device),
        "mounts": list(_mounts(driver, ref, device, claim_dir)),
    }
    nodes = _nodes(device)
    return {"deviceNodes": nodes, **edits} if nodes else edits


def _nodes(device: DeviceRecord) -> list[dict[str, Any]]:
    """Device nodes with numbers, owner and mode spelled out.

    An owner that is not asked for is left out, and the runtime takes the container's user. The
    mode is always there. Admin access opens for reading alone: usbfs refuses every request that
    changes or moves anything on such a file (drivers/usb/core/devio.c `usbdev_do_ioctl`).
    """
    config = layout.settings(device)
    looking = device.route is Route.OBSERVE
    owner = {"uid": config.uid, "gid": config.gid}
    return [
        {
            "path": link.path,
            "type": "b" if link.block else "c",
            "major": link.major,
            "minor": link.minor,
            "fileMode": config.mode & 0o444 if looking else config.mode,
            "permissions": "r" if looking else "rw",
            **{key: value for key, value in owner.items() if value is not None},
        }
        for link in layout.node_links(device)
    ]


def _mounts(
    driver: str, ref: ClaimRef, device: DeviceRecord, claim_dir: PurePosixPath
) -> Iterator[dict[str, Any]]:
    # Also while it is lost: when it is back, its links appear in what runs.
    if device.held is not None or device.exclusive:
        for target in layout.container_dirs(ref, device):
            yield _mount(links_dir(claim_dir, device), target)
    source = metadata_file(claim_dir, device.base_request)
    yield _mount(source, metadata.container_path(driver, ref, device.base_request))


def _mount(source: PurePosixPath, target: PurePosixPath) -> dict[str, Any]:
    """Read-only for the container; what appears in the host's directory is seen at once."""
    return {
        "hostPath": str(source),
        "containerPath": str(target),
        "options": ["bind", "ro", "nosuid", "noexec"],
    }


def links_dir(claim_dir: PurePosixPath, device: DeviceRecord) -> PurePosixPath:
    """The request's directory of links on the host."""
    return claim_dir / "links" / device.base_request


def metadata_file(claim_dir: PurePosixPath, request: str) -> PurePosixPath:
    """The request's metadata file on the host."""
    return claim_dir / "metadata" / f"{request}.json"
