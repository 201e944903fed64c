# SPDX-License-Identifier: Apache-2.0
"""Who we are and who the peer is: certificate files, TLS contexts, names in certificates.

Owns the TLS policy: version 1.3 only, mutual, our own CA only, no tickets. Must not touch
sockets (handshake.py does). One thread per Identity: the key log of a context is shared by its
connections and drained after each step (see TlsContext).
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from usbdra.errors import ConfigError, EncryptionUnavailable, NotAuthenticated
from usbdra.transport.keys import SUITES
from usbdra.transport.ktls import Role
from usbdra.types import CONTROLLER, NODE_URI_PREFIX, NodeName, is_node

if TYPE_CHECKING:
    import ssl

_NODE = re.compile(r"(?:outside/)?[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate (with any intermediates), its key, and the CA to trust."""

    cert: Path
    key: Path
    ca: Path

    @classmethod
    def in_directory(cls, directory: Path) -> TlsFiles:
        """The names `usbdra pki issue` and Kubernetes TLS secrets use."""
        return cls(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What a verified certificate says of its owner. `serial` is hex, `not_after` as in the
    certificate, for logs. `node_uid` is the UID of the Node object it was issued for, "" in
    certificates that were not made for a cluster; `uris` its URI names but for the node's."""

    node: NodeName
    dns: tuple[str, ...]
    addresses: tuple[str, ...]
    serial: str
    not_after: str
    node_uid: str = ""
    uris: tuple[str, ...] = ()

    def names(self, expected: str) -> bool:
        """True when the certificate was issued to `expected`: a node, DNS name or address.

        One that is not a node's is good for its own name alone, whatever else it says.
        """
        wanted = expected.lower().rstrip(".")
        if not is_node(self.node):
            return wanted == self.node
        if wanted == self.node or wanted in self.dns:
            return True
        address = _address(expected.partition("%")[0])
        return address is not None and address in self.addresses


def _address(text: str) -> str | None:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return None


def peer_certificate(fields: Mapping[str, Any] | None) -> PeerCertificate:
    """Read `SSLObject.getpeercert()`. Raises NotAuthenticated unless it names exactly one node."""
    names: list[tuple[str, str]] = list((fields or {}).get("subjectAltName", ()))
    nodes = [value for kind, value in names if kind == "URI" and value.startswith(NODE_URI_PREFIX)]
    if not fields or len(nodes) != 1:
        raise NotAuthenticated(
            f"the peer's certificate names {len(nodes)} nodes; one URI name "
            f"{NODE_URI_PREFIX}<node> is needed"
        )
    node = nodes[0].removeprefix(NODE_URI_PREFIX)
    if node != CONTROLLER and not _NODE.fullmatch(node):
        raise NotAuthenticated(f"the peer's certificate names a malformed node {node[:64]!r}")
    addresses = (_address(value) for kind, value in names if kind == "IP Address")
    return PeerCertificate(
        node=NodeName(node),
        dns=tuple(value.lower() for kind, value in names if kind == "DNS"),
        addresses=tuple(address for address in addresses if address),
        serial=str(fields.get("serialNumber", "")),
        not_after=str(fields.get("notAfter", "")),
        node_uid=_node_uid(fields),
        uris=tuple(value for kind, value in names if kind == "URI" and value != nodes[0]),
    )


def _node_uid(fields: Mapping[str, Any]) -> str:
    """The subject's serial number: pki/authority.py puts the UID there."""
    names = [pair for part in fields.get("subject", ()) for pair in part]
    return next((str(value) for key, value in names if key == "serialNumber"), "")


class TlsContext:
    """An ssl context whose key log goes to memory of our own, never to a disk.

    OpenSSL writes a connection's secrets during its do_handshake() calls and at no other time;
    whoever makes such a call takes the log right after it, before anything else can run, so one
    context serves many connections at once without its files being read again.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.ssl = context
        self._log = os.memfd_create("usbdra-keylog", os.MFD_CLOEXEC)
        # Connections may outlive the identity's next reload: the memory goes with its last user.
        weakref.finalize(self, os.close, self._log)
        context.keylog_filename = f"/proc/self/fd/{self._log}"

    def take_log(self) -> bytearray:
        """What was logged since the last call; the memory is overwritten and emptied."""
        buffer = bytearray(os.fstat(self._log).st_size)
        if buffer:
            os.preadv(self._log, [buffer], 0)
            os.pwrite(self._log, bytes(len(buffer)), 0)
            os.ftruncate(self._log, 0)
        return buffer


class Contexts(Protocol):
    """Where a connection's context comes from: an Identity, or its like."""

    def context(self, role: Role) -> TlsContext:
        """The context for the next connection in this role."""


class Identity:
    """Our certificate, key and CA, read once and again when a file changes.

    A rotation is picked up by the next connection; running links keep their keys and never
    notice. A half-written rotation keeps the old identity for as long as it lasts.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Raises ConfigError naming the file that cannot be used."""
        self.files = files
        self._stamp = _stamp(files)
        self._contexts = _load(files)

    def context(self, role: Role) -> TlsContext:
        """The context for new connections in this role."""
        self._reload()
        return self._contexts[role]

    def _reload(self) -> None:
        try:
            stamp = _stamp(self.files)
            if stamp != self._stamp:
                self._contexts = _load(self.files)
                self._stamp = stamp
        except ConfigError as exc:
            from logging import getLogger

            # The text alone: a record that is kept must not keep contexts and their memory.
            getLogger(__name__).warning("keeping the previous certificate: %s", str(exc))


class LateIdentity:
    """One Identity for all who ask, of files that may not be there yet.

    Contexts are not small, and hold memory until Python collects them: nobody needs a second set.
    """

    def __init__(self, files: Callable[[], TlsFiles]) -> None:
        """files: where they are when they are read for the first time."""
        self._files = files
        self._identity: Identity | None = None

    def __call__(self) -> Identity:
        """The identity. Raises ConfigError as long as its files cannot be used."""
        if self._identity is None:
            self._identity = Identity(self._files())
        return self._identity


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int], ...]:
    stamps = []
    for path in (files.cert, files.key, files.ca):
        try:
            status = path.stat()
        except OSError as exc:
            raise ConfigError(f"cannot use {path}: {exc.strerror}") from exc
        stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def load_context(files: TlsFiles, role: Role) -> TlsContext:
    """A context of these files as they are now. Raises ConfigError, EncryptionUnavailable."""
    return TlsContext(_ssl_context(files, role))


def context_of(cert: bytes, key: bytes, ca: bytes, role: Role) -> TlsContext:
    """A context of PEM texts that are in no file. OpenSSL reads files only: these are memory of
    this process. Raises ConfigError, EncryptionUnavailable."""
    with ExitStack() as stack:
        paths = []
        for name, text in (("tls.crt", cert), ("tls.key", key), ("ca.crt", ca)):
            fd = os.memfd_create(name, os.MFD_CLOEXEC)
            stack.callback(os.close, fd)
            os.write(fd, text)
            paths.append(Path(f"/proc/self/fd/{fd}"))
        return load_context(TlsFiles(paths[0], paths[1], paths[2]), role)


def _load(files: TlsFiles) -> dict[Role, TlsContext]:
    return {role: load_context(files, role) for role in Role}


def _ssl_context(files: TlsFiles, role: Role) -> ssl.SSLContext:
    import ssl

    server = role is Role.SERVER
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Names are checked by PeerCertificate.names: a node name is no host name.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if server:
        # A ticket would be a record under the keys the kernel is about to get.
        context.num_tickets = 0
    if not SUITES.keys() & {suite["name"] for suite in context.get_ciphers()}:
        raise EncryptionUnavailable(
            f"OpenSSL allows none of {', '.join(SUITES)}; see Ciphersuites in openssl.cnf"
        )
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"cannot use {files.cert} with {files.key}: {_why(exc)}") from exc
    try:
        context.load_verify_locations(cafile=files.ca)
    except OSError as exc:
        raise ConfigError(f"cannot use {files.ca}: {_why(exc)}") from exc
    return context


def _no_password() -> NoReturn:
    # Without this OpenSSL would ask on the terminal.
    raise ValueError("the key is encrypted; give it without a password, mode 0600")


def _why(exc: Exception) -> str:
    import ssl

    if isinstance(exc, ssl.SSLError):
        return (exc.reason or "not PEM").replace("_", " ").lower()
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
