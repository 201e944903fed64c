# SPDX-License-Identifier: Apache-2.0
"""The node's certificate from the cluster: asked for, renewed, and the trust bundle followed.

Owns the key's whole life: it is made here, lies in this node's memory file system and goes
nowhere else. Links never wait for it and never notice: transport/tls.py reads the newest set for
each new connection. What to ask for is pki/request.py's, when pki/held.py's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from usbdra.agent.options import AgentOptions
from usbdra.errors import ConfigError, UsbdraError
from usbdra.kube.addresses import internal_addresses
from usbdra.kube.signing import ask
from usbdra.kube.types import CONFIG_MAP, NODE, Object
from usbdra.kube.verbs import Creates, Gets, Lister
from usbdra.kube.watch import Change, Reflector
from usbdra.pki import held, sets, trust
from usbdra.pki.authority import Pair, new_key, read_certificates
from usbdra.pki.request import make_request
from usbdra.slices.limits import digest, shorten
from usbdra.types import NodeName

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

ANSWER_TIME = 120.0
"""Seconds to wait for a signer; then a new request is made, as its key is kept in memory only."""
LOOK_AGAIN = 3600.0
"""Longest pause in seconds: clocks are set and machines sleep while we wait, addresses change."""


class Api(Lister, Gets, Creates, Protocol):
    """The verbs of KubeClient that a certificate needs."""


@dataclass(frozen=True, slots=True)
class CertificateOptions:
    """directory: where sets.py keeps the sets. namespace and bundle: the ConfigMap with the CAs
    to believe, key `ca.crt`."""

    node: NodeName
    directory: Path
    signer: str
    namespace: str
    bundle: str = "usbdra-trust"
    lifetime: timedelta = timedelta(hours=24)


class NodeCertificate:
    """Run it; `ready` is set as soon as there is a set that works."""

    def __init__(
        self,
        api: Api,
        options: CertificateOptions,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        backoff: tuple[float, float] = (1.0, 60.0),
        answer_time: float = ANSWER_TIME,
    ) -> None:
        self.ready = asyncio.Event()
        self._api = api
        self._options = options
        self._clock = clock
        self._backoff = backoff
        self._answer_time = answer_time
        self._part = random.uniform(*held.RENEW_AT)  # noqa: S311 - jitter
        self._bundle: tuple[x509.Certificate, ...] = ()
        self._news = asyncio.Event()

    @classmethod
    def of_node(cls, options: AgentOptions, api: Api) -> NodeCertificate | None:
        """What keeps this node's certificate, when the cluster signs it."""
        if not options.signer:
            return None
        wanted = CertificateOptions(
            options.node,
            options.pki_dir,
            options.signer,
            options.namespace,
            options.trust_bundle,
            timedelta(hours=options.certificate_hours),
        )
        return cls(api, wanted)

    async def run(self) -> None:
        """Keep the certificate good until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_bundle())
            low, high = self._backoff
            pause = low
            while True:
                self._news.clear()
                try:
                    wait, pause = await self._look(), low
                except UsbdraError as error:
                    log.warning("this node's certificate: %s", error)
                    wait, pause = pause * random.uniform(0.8, 1.2), min(pause * 2, high)  # noqa: S311
                await self._news_within(wait)

    async def _look(self) -> float | None:
        """Do what is due; seconds until something is, None to wait for a bundle.

        Raises UsbdraError for what to try again.
        """
        if not self._bundle:
            return None
        has = held.read_held(self._options.directory / sets.CURRENT)
        node = await self._api.get(NODE, self._options.node)
        uid, addresses = str(node["metadata"]["uid"]), internal_addresses(node)
        now = self._clock()
        due = now if has is None else self._due(has.pair.cert, uid, addresses, now)
        if has is not None and due > now:
            if has.bundle != trust.write_bundle(self._bundle):
                self._publish(has.pair)
            self.ready.set()
            return min((due - now).total_seconds(), LOOK_AGAIN)
        pair = await self._ask(uid, addresses)
        self._publish(pair)
        self._part = random.uniform(*held.RENEW_AT)  # noqa: S311 - jitter
        self.ready.set()
        log.info(
            "this node has a new certificate",
            extra={"until": f"{pair.cert.not_valid_after_utc:%Y-%m-%dT%H:%MZ}"},
        )
        due = self._due(pair.cert, uid, addresses, now)
        return min(max((due - now).total_seconds(), self._backoff[0]), LOOK_AGAIN)

    def _due(
        self, cert: x509.Certificate, uid: str, addresses: Sequence[str], now: datetime
    ) -> datetime:
        return held.renew_at(
            cert,
            self._bundle,
            now,
            node=self._options.node,
            node_uid=uid,
            addresses=addresses,
            part=self._part,
        )

    def _publish(self, pair: Pair) -> None:
        contents = {
            "tls.key": pair.key_pem(),
            "tls.crt": pair.cert_pem(),
            "ca.crt": trust.write_bundle(self._bundle),
        }
        sets.publish(self._options.directory, contents)

    async def _ask(self, uid: str, addresses: Sequence[str]) -> Pair:
        """A certificate for a new key. Raises Refused with the signer's reason, ApiError."""
        key = new_key()
        options = self._options
        request = make_request(key, options.node, uid, addresses)
        name = shorten(f"usbdra-{options.node}", 200) + f"-{digest(request.decode())}"
        pem = await ask(
            self._api,
            name,
            request,
            options.signer,
            int(options.lifetime.total_seconds()),
            self._answer_time,
        )
        pair = Pair(read_certificates(pem, "the signer's answer")[0], key)
        held.require(pair.cert, key.public_key(), self._bundle, self._clock())
        return pair

    async def _follow_bundle(self) -> None:
        reflector = Reflector(
            self._api,
            CONFIG_MAP,
            self._options.namespace,
            fields=f"metadata.name={self._options.bundle}",
            on_error=self._complain,
        )
        async for change in reflector.run():
            if isinstance(change, Change) and change.new is not None:
                self._take_bundle(change.new)
            elif not self._bundle:
                self._complain(
                    f"there is no ConfigMap {self._what} yet; usbdra controller makes it"
                )

    def _take_bundle(self, item: Object) -> None:
        """A bundle that cannot be read changes nothing: the one before is kept."""
        text = str((item.get("data") or {}).get("ca.crt", ""))
        try:
            self._bundle = trust.read_bundle(text.encode(), f"ConfigMap {self._what}")
        except ConfigError as error:
            self._complain(error)
        else:
            self._news.set()

    @property
    def _what(self) -> str:
        return f"{self._options.namespace}/{self._options.bundle}"

    def _complain(self, error: object) -> None:
        log.warning("trust bundle: %s", error, extra={"once": str(error)})

    async def _news_within(self, seconds: float | None) -> None:
        """Wait for a new bundle, or so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
