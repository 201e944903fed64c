# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane inside one network namespace.

Owns the processes etcd, kube-apiserver, kube-scheduler and kube-controller-manager, their
certificates and data, from start to end. It does not make the namespace and knows no nodes, apart
from signing what a node needs to join.

The API server listens on port 443 of every address of the namespace, the first service address
among them, so that pods reach `kubernetes.default` by plain routing: the bed needs no kube-proxy.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3

from tests.bed.host import run
from tests.cluster.certs import (
    Authority,
    KeyPair,
    kubeconfig,
    token_kubeconfig,
    write_private,
    write_service_account_keys,
)
from tests.cluster.netns import Door, command_inside, socket_inside
from tests.cluster.process import Component

SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"  # the API server's own service: always the first of the range
ETCD_PORT = 2379
API_PORT = 443
_POLL_SECONDS = 0.1
_GATE_FLAG = "--feature-gates="
_GATED = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
_NO_WATCH = "24h"
# The controller remembers a node by its name: one that a test removed and another test made anew
# at once would be taken for the old one, silent for longer than any shorter period.


@dataclass(frozen=True)
class NodeIdentity:
    """What a kubelet needs to join: texts and bytes to be copied to the node."""

    kubeconfig: str
    ca_pem: bytes
    serving_cert: bytes
    serving_key: bytes


class ControlPlane:
    """Started and stopped as a context manager; usable once `start` has returned.

    Args:
        binary: the multi-call binary of `tests.bed.clusterbin`.
        namespace: name of an existing network namespace.
        directory: an empty directory for data, certificates and logs.
        address: the namespace's address that nodes reach.
        feature_gates: set alike on every component, and to be given to the kubelets too.
        detached: the components outlive this process; the end of the block lets go of them.
        keep_fds: descriptors that detached components hold open.
        watch_nodes: nodes whose kubelet says nothing are marked unknown after 50 s; without, the
            readiness that a test wrote into a Node stays as it is.
        apiserver_flags: more of them, for instance an audit log's.
    """

    def __init__(
        self,
        binary: Path,
        namespace: str,
        directory: Path,
        address: str,
        feature_gates: Mapping[str, bool] | None = None,
        *,
        detached: bool = False,
        keep_fds: tuple[int, ...] = (),
        watch_nodes: bool = True,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self._binary = binary
        self._namespace = namespace
        self._directory = directory
        self._address = address
        self.feature_gates = dict(feature_gates or {})
        self._authority = Authority(directory / "pki")
        self._detached, self._keep_fds = detached, keep_fds
        self._watch_nodes = watch_nodes
        self._more_flags = tuple(apiserver_flags)
        # Names the port of this process's own door.
        self.admin_kubeconfig = directory / f"admin-{os.getpid()}.kubeconfig"
        self._door: Door | None = None
        self._components: dict[str, Component] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.let_go() if self._detached else self.stop()

    @property
    def logs(self) -> list[Path]:
        """The log file of each component."""
        return [component.log for component in self._components.values()]

    @property
    def target(self) -> tuple[str, int]:
        """Where the API server listens inside the namespace, for doors of one's own."""
        return "127.0.0.1", API_PORT

    @property
    def server(self) -> str:
        """The URL that nodes and pods on the bed's network use."""
        return f"https://{self._address}:{API_PORT}"

    def token_kubeconfig(self, token: str, door: Door | None = None) -> str:
        """The text of a kubeconfig for clients on this machine that show a bearer token.

        door: the way to the API server, where it is not the one that all clients share.
        """
        server = f"https://127.0.0.1:{door.port}" if door else self._local_server
        return token_kubeconfig(server, self._authority.pem, token)

    def component(self, name: str) -> Component:
        """A component by its program name, for tests that stop and start it."""
        return self._components[name]

    def start(self, timeout: float = 120.0) -> None:
        """Start everything and return when the API server says that it is ready.

        Raises:
            HostError: a component ended by itself; the message holds the end of its log.
            TimeoutError: not ready after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        self._prepare_network()
        self._authority.client("admin", "usbdra-test-admin", ("system:masters",))
        self._open_door()
        self._launch("etcd", self._etcd_flags())
        self._wait_port(ETCD_PORT, deadline)
        self._launch("kube-apiserver", self._apiserver_flags())
        self.wait_ready(deadline - time.monotonic())
        self._launch("kube-scheduler", self._scheduler_flags())
        self._launch("kube-controller-manager", self._controller_flags())

    def stop(self) -> None:
        """End the components in reverse order of their start."""
        for component in reversed(self._components.values()):
            component.stop()
        self.let_go()

    def let_go(self) -> None:
        """End what belongs to this process; the components go on if they are detached."""
        if self._door is not None:
            self._door.close()
            self._door = None
        self.admin_kubeconfig.unlink(missing_ok=True)

    def commands(self) -> dict[str, list[str]]:
        """How each component was started, for `take_over` in another process."""
        return {name: component.command for name, component in self._components.items()}

    def take_over(self, commands: Mapping[str, list[str]]) -> None:
        """Go on with detached components that another process has started in `directory`."""
        for name, command in commands.items():
            self._components[name] = self._component(name, command)
        self._open_door()

    @contextlib.contextmanager
    def regated(self, gates: Mapping[str, bool]) -> Iterator[None]:
        """API server, scheduler and controllers started again with these gates; then as before.

        What is stored stays. Kubelets keep their gates.
        """
        parts = [self._components[name] for name in _GATED]
        before = [list(part.command) for part in parts]
        flags = self._gate_flags({**self.feature_gates, **gates})
        plain = [
            [word for word in command if not word.startswith(_GATE_FLAG)] for command in before
        ]
        self._restart(parts, [[*command, *flags] for command in plain])
        try:
            yield
        finally:
            self._restart(parts, before)

    def _restart(self, parts: Sequence[Component], commands: Sequence[list[str]]) -> None:
        for part in reversed(parts):
            part.stop()
        for part, command in zip(parts, commands, strict=True):
            part.command = command
            part.start()
            if part.name == "kube-apiserver":
                self.wait_ready()

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait for the API server's own /readyz, for instance after a test restarted it."""
        deadline = time.monotonic() + timeout
        admin = self._pki("admin")
        with urllib3.PoolManager(
            ca_certs=str(self._authority.pair.cert),
            cert_file=str(admin.cert),
            key_file=str(admin.key),
            retries=False,
            timeout=5.0,
        ) as pool:
            while not self._is_ready(pool):
                self._check(deadline, "kube-apiserver is not ready")
                time.sleep(_POLL_SECONDS)

    def identity(self, node: str, address: str) -> NodeIdentity:
        """Sign what the kubelet of `node` at `address` needs: Node authorizer user, server name."""
        client = self._authority.client(f"node-{node}", f"system:node:{node}", ("system:nodes",))
        serving = self._authority.server(
            f"node-{node}-serving", f"system:node:{node}", (node, address)
        )
        return NodeIdentity(
            kubeconfig=kubeconfig(self.server, self._authority.pem, client),
            ca_pem=self._authority.pem,
            serving_cert=serving.cert.read_bytes(),
            serving_key=serving.key.read_bytes(),
        )

    @property
    def _local_server(self) -> str:
        """The URL that clients on this machine use."""
        assert self._door is not None
        return f"https://127.0.0.1:{self._door.port}"

    def _is_ready(self, pool: urllib3.PoolManager) -> bool:
        try:
            response = pool.request("GET", f"{self._local_server}/readyz")
        except urllib3.exceptions.HTTPError:
            return False
        return response.status == 200

    def _check(self, deadline: float, complaint: str) -> None:
        for component in self._components.values():
            component.check()
        if time.monotonic() > deadline:
            tails = "\n".join(f"{c.name}: {c.tail()}" for c in self._components.values())
            raise TimeoutError(f"{complaint}\n{tails}")

    def _wait_port(self, port: int, deadline: float) -> None:
        while True:
            with socket_inside(self._namespace) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            self._check(deadline, f"nothing listens on port {port}")
            time.sleep(_POLL_SECONDS)

    def _prepare_network(self) -> None:
        for change in (
            ["link", "set", "lo", "up"],
            ["address", "replace", f"{SERVICE_ADDRESS}/32", "dev", "lo"],
        ):
            run(["ip", "-n", self._namespace, *change])

    def _open_door(self) -> None:
        self._door = Door(self._namespace, self.target)
        self._write_kubeconfig(self.admin_kubeconfig, self._local_server, self._pki("admin"))

    def _launch(self, name: str, flags: list[str]) -> None:
        command = command_inside(self._namespace, [str(self._binary), name, *flags])
        self._components[name] = self._component(name, command)
        self._components[name].start()

    def _component(self, name: str, command: list[str]) -> Component:
        log = self._directory / f"{name}.log"
        return Component(name, command, log, detached=self._detached, keep_fds=self._keep_fds)

    def _pki(self, name: str) -> KeyPair:
        directory = self._directory / "pki"
        return KeyPair(directory / f"{name}.crt", directory / f"{name}.key")

    def _write_kubeconfig(self, path: Path, server: str, client: KeyPair) -> None:
        write_private(path, kubeconfig(server, self._authority.pem, client).encode())

    def _component_kubeconfig(self, name: str) -> str:
        path = self._directory / f"{name}.kubeconfig"
        client = self._authority.client(name, f"system:{name}")
        self._write_kubeconfig(path, f"https://127.0.0.1:{API_PORT}", client)
        return str(path)

    def _gate_flags(self, gates: Mapping[str, bool] | None = None) -> list[str]:
        gates = self.feature_gates if gates is None else gates
        if not gates:
            return []
        return [_GATE_FLAG + ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())]

    def _etcd_flags(self) -> list[str]:
        clients = f"http://127.0.0.1:{ETCD_PORT}"
        return [
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",  # nobody needs this data after the run
        ]

    def _apiserver_flags(self) -> list[str]:
        names = ("127.0.0.1", self._address, SERVICE_ADDRESS, "localhost")
        services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        serving = self._authority.server("apiserver", "kube-apiserver", (*names, *services))
        kubelets = self._authority.client(
            "apiserver-kubelet", "kube-apiserver", ("system:masters",)
        )
        signing, checking = write_service_account_keys(self._directory / "pki")
        return [
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            f"--secure-port={API_PORT}",
            f"--advertise-address={self._address}",
            f"--client-ca-file={self._authority.pair.cert}",
            f"--tls-cert-file={serving.cert}",
            f"--tls-private-key-file={serving.key}",
            f"--kubelet-certificate-authority={self._authority.pair.cert}",
            f"--kubelet-client-certificate={kubelets.cert}",
            f"--kubelet-client-key={kubelets.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={checking}",
            f"--service-account-signing-key-file={signing}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged",
            *self._more_flags,
            *self._gate_flags(),
        ]

    def _scheduler_flags(self) -> list[str]:
        access = self._component_kubeconfig("kube-scheduler")
        return [*self._access_flags(access), *self._gate_flags()]

    def _controller_flags(self) -> list[str]:
        access = self._component_kubeconfig("kube-controller-manager")
        authority = self._authority.pair
        return [
            *self._access_flags(access),
            f"--root-ca-file={authority.cert}",
            f"--cluster-signing-cert-file={authority.cert}",
            f"--cluster-signing-key-file={authority.key}",
            f"--service-account-private-key-file={self._pki('sa').key}",
            "--use-service-account-credentials",
            *([] if self._watch_nodes else [f"--node-monitor-grace-period={_NO_WATCH}"]),
            *self._gate_flags(),
        ]

    @staticmethod
    def _access_flags(access: str) -> list[str]:
        return [
            f"--kubeconfig={access}",
            f"--authentication-kubeconfig={access}",
            f"--authorization-kubeconfig={access}",
            "--leader-elect=false",
        ]
