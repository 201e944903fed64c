# SPDX-License-Identifier: Apache-2.0
"""The controller's part for certificates: an authority and a signer, or a signer's approver.

Owns composition only. With a signer of the cluster's own group we keep the CA and sign; with any
other (cert-manager's) we check and approve, and whoever owns that signer signs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from usbdra.controller import castore, rotation
from usbdra.controller.authority import ClusterAuthority
from usbdra.controller.certificates import Signer
from usbdra.controller.granting import LIFETIME as GRANT_LIFETIME
from usbdra.controller.granting import Granting
from usbdra.controller.hostcerts import LIFETIME as HOST_LIFETIME
from usbdra.controller.hostcerts import HostCertificates
from usbdra.controller.outsidesettings import OutsideSettings
from usbdra.controller.requests import Requests
from usbdra.controller.review import Rules, requester
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import GRANT_SIGNER, HOST_SIGNER, Contract
from usbdra.pki.expiry import life_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """What nodes' certificates are: who signs, who may ask, how long they hold."""

    signer: str
    account: str = "usbdra-agent"
    """The agents' service account, in the controller's namespace."""
    bundle: str = "usbdra-trust"
    lifetime: timedelta = timedelta(hours=24)
    ca_lifetime: timedelta = timedelta(days=365)
    settle: timedelta = timedelta(hours=1)
    """How long a new CA is believed before it signs."""


class Issuing:
    """See controller/parts.py. outside: what to answer for hosts outside the cluster."""

    def __init__(
        self,
        api: KubeClient,
        namespace: str,
        group: str,
        settings: CertificateSettings,
        outside: OutsideSettings | None = None,
    ) -> None:
        rules = Rules(settings.signer, requester(namespace, settings.account))
        self._authority: ClusterAuthority | None = None
        if settings.signer.startswith(f"{group}/"):
            self._authority = ClusterAuthority(
                api,
                castore.Names(namespace, bundle=settings.bundle),
                group,
                lifetime=settings.ca_lifetime,
                timing=rotation.Timing(settings.settle, settings.lifetime),
            )
        signing = self._authority.signing if self._authority else None
        self._signers: list[Requests] = [Signer(api, rules, signing, settings.lifetime)]
        if outside is not None and signing is not None:
            contract = Contract(group)
            granted = Rules(contract.key(GRANT_SIGNER), rules.requester)
            look = Granting(api, contract, granted, outside.assignment).look
            self._signers.append(Requests(api, granted.signer, look, signing, GRANT_LIFETIME))
            hosts = HostCertificates(api, contract).look
            host_signer = contract.key(HOST_SIGNER)
            self._signers.append(Requests(api, host_signer, hosts, signing, HOST_LIFETIME))

    def life(self) -> tuple[float, float] | None:
        """Of our CA, see pki/expiry.py; None while it is not known, or somebody else's."""
        pair = self._authority.signing_now if self._authority else None
        return life_of(pair.cert) if pair else None

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._authority is not None:
                group.create_task(self._authority.run())
            for signer in self._signers:
                group.create_task(signer.run())
