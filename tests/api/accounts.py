# SPDX-License-Identifier: Apache-2.0
"""Service accounts as pods have them: tokens that name a node, and clients that show them.

Owns the clients it hands out and closes them. Makes no accounts and no rights: charts do.
"""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from pathlib import Path

from kubernetes import client

from tests.cluster.alone import Alone
from tests.cluster.certs import write_private
from usbdra.kube.client import KubeClient

TOKEN_SECONDS = 3600


class Accounts:
    """Clients by service account. Close with `aclose`; the test's fixture does."""

    def __init__(self, cluster: Alone, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._stack = AsyncExitStack()
        self._count = itertools.count()

    async def aclose(self) -> None:
        """Close every client that was handed out."""
        await self._stack.aclose()

    def token(self, namespace: str, name: str, node: str | None = None) -> str:
        """A token of an existing service account; with `node` it carries that Node's claim.

        A pod's token carries the claim too; one bound to the Node itself needs no pod (KEP-4193).
        """
        bound = None
        if node is not None:
            uid = self._cluster.api.core.read_node(node).metadata.uid
            bound = client.V1BoundObjectReference(api_version="v1", kind="Node", name=node, uid=uid)
        wanted = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(
                audiences=[], expiration_seconds=TOKEN_SECONDS, bound_object_ref=bound
            )
        )
        made = self._cluster.api.core.create_namespaced_service_account_token(
            name, namespace, wanted
        )
        return str(made.status.token)

    async def client(self, namespace: str, name: str, node: str | None = None) -> KubeClient:
        """The product's client, as the service account `namespace`/`name` (on `node`)."""
        path = self._folder / f"account-{next(self._count)}.kubeconfig"
        text = self._cluster.plane.token_kubeconfig(self.token(namespace, name, node))
        write_private(path, text.encode())
        return await self._keep(path)

    async def admin(self) -> KubeClient:
        """The product's client with every right."""
        return await self._keep(self._cluster.plane.admin_kubeconfig)

    async def _keep(self, kubeconfig: Path) -> KubeClient:
        made = await KubeClient.connect(kubeconfig)
        self._stack.push_async_callback(made.aclose)
        return made
