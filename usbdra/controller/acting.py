# SPDX-License-Identifier: Apache-2.0
"""Carrying out acts: values of acts.py become requests.

Owns the translation and nothing else: no decision, no cache.
"""

from __future__ import annotations

import logging

from usbdra.controller.acts import Act, Apply, Create, Object, Patch
from usbdra.kube.client import KubeClient
from usbdra.kube.types import Kind

log = logging.getLogger(__name__)

FIELD_MANAGER = "usbdra-controller"


async def carry_out(api: KubeClient, kind: Kind, act: Act) -> Object | None:
    """What the API server stored; None after a deletion. Raises ApiError."""
    if isinstance(act, Apply):
        return await api.apply(
            kind,
            act.body,
            manager=FIELD_MANAGER,
            namespace=act.namespace,
            subresource=act.subresource,
            force=act.force,
        )
    if isinstance(act, Patch):
        return await api.merge(kind, act.name, act.patch, namespace=act.namespace)
    if isinstance(act, Create):
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return await api.create(kind, {**head, **act.body}, act.namespace)
    await api.delete(kind, act.name, act.namespace, uid=act.uid)
    log.info("deleted", extra={"kind": kind.kind, "name_": act.name, "ns": act.namespace})
    return None
