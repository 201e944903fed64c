# SPDX-License-Identifier: Apache-2.0
"""What the native core promises, as bodies that run on fake files and on a real kernel alike.

Standard library and the extension only, so that a node can run them without pytest:
`run_real()` inside a guest, as root, with vhci_hcd, usbip_host and tls loaded. Each body raises
AssertionError with what it saw.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from usbdra._native import ktls, stub, sysfs, vhci
from usbdra._native.vhci import StatusTable

FREE_SECONDS = 30.0
"""How long a port may take from the detach write back to free, under emulation."""


@dataclass(frozen=True)
class Files:
    """Where the kernel's files are, or their fakes."""

    vhci: Path
    usbip_host: Path

    @property
    def controllers(self) -> int:
        return len(list(self.vhci.glob("status*")))

    def table(self) -> StatusTable:
        return vhci.read_status(bytes(self.vhci), self.controllers)


REAL = Files(Path("/sys/devices/platform/vhci_hcd.0"), Path("/sys/bus/usb/drivers/usbip-host"))


@contextmanager
def fails(number: int, operation: str, path: Path | None = None) -> Iterator[None]:
    """OSError with this number that names the operation and, for files, the path."""
    seen = None
    try:
        yield
    except OSError as error:
        seen = error
    assert seen is not None, f"{operation} went through, not {errno.errorcode[number]}"
    assert seen.errno == number, seen
    assert operation in str(seen), seen
    if path is not None:
        assert seen.filename == str(path), seen


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected ends on the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), timeout=10)
        accepted, _ = server.accept()
    with client, accepted:
        accepted.settimeout(10)
        yield client, accepted


# Bodies for fake and real files.


def table_has_every_port_once(files: Files) -> None:
    table = files.table()
    ports = [row.port for row in table]
    assert ports == list(range(int(sysfs.read(bytes(files.vhci / "nports"))))), ports
    assert {row.controller for row in table} == set(range(files.controllers))
    high, super_ = table.count(vhci.HUB_HIGH, -1), table.count(vhci.HUB_SUPER, -1)
    assert high == super_ == len(table) // 2, (high, super_)


def reading_at_once_is_reading_one_by_one(files: Files) -> None:
    names = ["status", *(f"status.{n}" for n in range(1, files.controllers))]
    texts = [sysfs.read(bytes(files.vhci / name)) for name in names]
    assert list(files.table()) == list(vhci.parse(texts))


def a_controller_too_many_is_named(files: Files) -> None:
    path = files.vhci / f"status.{files.controllers}"
    with fails(errno.ENOENT, "read_status", path):
        vhci.read_status(bytes(files.vhci), files.controllers + 1)


def missing_files_are_named(files: Files) -> None:
    with fails(errno.ENOENT, "attach", files.vhci / "none/attach"):
        vhci.attach(bytes(files.vhci / "none"), 0, 0, 1, 3)
    with fails(errno.ENOENT, "match_add", files.usbip_host / "none/match_busid"):
        stub.match_add(bytes(files.usbip_host / "none"), b"1-1")


COMMON: tuple[Callable[[Files], None], ...] = (
    table_has_every_port_once,
    reading_at_once_is_reading_one_by_one,
    a_controller_too_many_is_named,
    missing_files_are_named,
)


# Bodies that need a kernel which answers.


def wrong_stores_keep_the_kernels_error(files: Files) -> None:
    directory, host = bytes(files.vhci), bytes(files.usbip_host)
    beyond = len(files.table())
    with tcp_pair() as (sock, _), open("/dev/null", "rb") as null:
        with fails(errno.EINVAL, "attach", files.vhci / "attach"):
            vhci.attach(directory, beyond, sock.fileno(), 1, 3)
        with fails(errno.EINVAL, "attach", files.vhci / "attach"):
            vhci.attach(directory, 0, null.fileno(), 1, 3)
    with fails(errno.EINVAL, "detach", files.vhci / "detach"):
        vhci.detach(directory, beyond)
    with fails(errno.ENODEV, "match_del", files.usbip_host / "match_busid"):
        stub.match_del(host, b"99-9")
    with fails(errno.ENODEV, "bind", files.usbip_host / "bind"):
        stub.bind(host, b"99-9")
    with fails(errno.ENODEV, "unbind", files.usbip_host / "unbind"):
        stub.unbind(host, b"99-9")
    with fails(errno.ENODEV, "rebind", files.usbip_host / "rebind"):
        stub.rebind(host, b"99-9")


def match_table_keeps_what_was_never_bound(files: Files) -> None:
    """stub_main.c `del_match_busid` clears an entry only in state OTHER, which `rebind` sets; a
    `del` of an entry that no device was bound by says yes and changes nothing (run, 6.1, 6.12)."""
    host, path = bytes(files.usbip_host), bytes(files.usbip_host / "match_busid")
    stub.match_add(host, b"99-9.1")
    assert b"99-9.1" in sysfs.read(path).split(), sysfs.read(path)
    stub.match_del(host, b"99-9.1")
    assert sysfs.read(path).split().count(b"99-9.1") == 1, sysfs.read(path)
    stub.match_add(host, b"99-9.1")  # the same entry again, not one more of the 16
    assert sysfs.read(path).split().count(b"99-9.1") == 1, sysfs.read(path)


def attach_takes_the_socket_and_detach_frees_the_port(files: Files) -> None:
    directory = bytes(files.vhci)
    index = files.table().first(vhci.HUB_HIGH, vhci.STATE_FREE)
    port, devid = files.table()[index].port, 7 << 16 | 9
    with tcp_pair() as (ours, peer):
        vhci.attach(directory, port, ours.fileno(), devid, 3)
        ours.close()  # the kernel has its own reference
        try:
            request = peer.recv(48, socket.MSG_WAITALL)
            assert request[:4] == b"\0\0\0\1", request  # USBIP_CMD_SUBMIT: enumeration starts
            assert int.from_bytes(request[8:12], "big") == devid, request
            row = files.table()[index]
            assert row.state in (vhci.STATE_ATTACHING, vhci.STATE_USED), row
            assert row.port in [r.port for r in files.table().not_free()]
            port_taken_meanwhile(files, port)
        finally:
            vhci.detach(directory, port)
        deadline = time.monotonic() + FREE_SECONDS
        while files.table()[index].state != vhci.STATE_FREE:
            assert time.monotonic() < deadline, files.table()[index]
            time.sleep(0.02)


def port_taken_meanwhile(files: Files, port: int) -> None:
    """EBUSY on newer kernels, EINVAL on older ones."""
    number = 0
    with tcp_pair() as (sock, _):
        try:
            vhci.attach(bytes(files.vhci), port, sock.fileno(), 1, 3)
        except OSError as error:
            number = error.errno or 0
    assert number in (errno.EBUSY, errno.EINVAL), f"port {port} given out twice: {number}"


def kernel_tls_carries_bytes(files: Files) -> None:
    for cipher, size in ((ktls.AES_128_GCM, 16), (ktls.AES_256_GCM, 32)):
        for first_record in (0, 5):
            with tcp_pair() as (a, b):
                for sock in (a, b):
                    ktls.attach_ulp(sock.fileno())
                    assert ktls.cipher_in_use(sock.fileno(), ktls.TX) == 0
                    assert ktls.cipher_in_use(sock.fileno(), ktls.RX) == 0
                there, back = bytes(range(size)), bytes(range(size, 2 * size))
                iv = bytes(range(100, 112))
                for sock, send, receive in ((a, there, back), (b, back, there)):
                    for way, key in ((ktls.TX, send), (ktls.RX, receive)):
                        ktls.set_keys(sock.fileno(), way, cipher, key, iv, first_record)
                        assert ktls.cipher_in_use(sock.fileno(), way) == cipher
                    with fails(errno.EBUSY, "set_keys"):
                        ktls.set_keys(sock.fileno(), ktls.TX, cipher, send, iv)
                a.sendall(b"one way")
                assert b.recv(100) == b"one way"
                b.sendall(b"and back")
                assert a.recv(100) == b"and back"


def kernel_tls_refuses_other_keys(files: Files) -> None:
    with tcp_pair() as (a, b):
        for sock in (a, b):
            ktls.attach_ulp(sock.fileno())
        ktls.set_keys(a.fileno(), ktls.TX, ktls.AES_128_GCM, bytes(16), bytes(12))
        ktls.set_keys(b.fileno(), ktls.RX, ktls.AES_128_GCM, b"\1" * 16, bytes(12))
        a.sendall(b"not for you")
        with fails(errno.EBADMSG, ""):
            b.recv(100)


def ulp_needs_a_connection(files: Files) -> None:
    with socket.socket() as lonely, fails(errno.ENOTCONN, "attach_ulp"):
        ktls.attach_ulp(lonely.fileno())


REAL_ONLY: tuple[Callable[[Files], None], ...] = (
    wrong_stores_keep_the_kernels_error,
    match_table_keeps_what_was_never_bound,
    attach_takes_the_socket_and_detach_frees_the_port,
    kernel_tls_carries_bytes,
    kernel_tls_refuses_other_keys,
    ulp_needs_a_connection,
)


def run_real() -> list[str]:
    """Run every body on this machine's kernel; names of those that ran."""
    done = []
    for body in (*COMMON, *REAL_ONLY):
        try:
            body(REAL)
        except Exception as error:
            raise AssertionError(f"{body.__name__}: {error!r}") from error
        done.append(body.__name__)
    return done
