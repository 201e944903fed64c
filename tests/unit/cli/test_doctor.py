# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds, and what it says to do."""

from __future__ import annotations

import errno
import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.sysfs import SysTree
from tests.unit.cli.conftest import Cli
from usbdra._native import ktls
from usbdra.cli import checks
from usbdra.cli.checks import Level
from usbdra.config import Settings
from usbdra.pki import authority, sets
from usbdra.transport.measure import Counters
from usbdra.types import Endpoints

MODULES = ("usbip_core", "usbip_host", "vhci_hcd", "tls", "inet_diag", "tcp_diag")


def load_all(tree: SysTree) -> None:
    tree.usbip_host()
    for name in MODULES:
        (tree.sys / "module" / name).mkdir(parents=True)


def test_a_node_that_has_everything_ends_with_0(cli: Cli, tree: SysTree) -> None:
    load_all(tree)
    result = cli("doctor", "--root", tree.root)
    assert result.code == 0
    assert result.lines[-3:] == [
        "ok    vhci ports: 8 high-speed, 8 super-speed on 1 controllers",
        "ok    usbip-host: 0 of 16 bus ids in its table",
        "this node is ready",
    ]


def test_r68_a_node_without_modules_ends_with_6_and_says_what_to_do(
    cli: Cli, tmp_path: Path
) -> None:
    SysTree(tmp_path)
    (tmp_path / "lib/modules/6.1").mkdir(parents=True)
    (tmp_path / "lib/modules/6.1/modules.dep").write_text("usbip/vhci-hcd.ko:\n")
    SysTree(tmp_path).proc("sys/kernel/osrelease", "6.1\n")
    result = cli("doctor", "--root", tmp_path)
    assert result.code == 6
    assert "fail  module vhci_hcd: not loaded; without it no import" in result.lines
    assert "      -> run: modprobe vhci_hcd" in result.lines
    assert (
        "fail  module usbip_host: missing; without it no export (kernel 6.1 has no such module)"
        in result.lines
    )


def node_with_index(root: Path) -> SysTree:
    """Nothing loaded; the running kernel's index has both USB/IP modules and tls."""
    tree = SysTree(root)
    tree.proc("sys/kernel/osrelease", "6.1\n")
    index = root / "lib/modules/6.1"
    index.mkdir(parents=True)
    (index / "modules.dep").write_text(
        "usbip/usbip-core.ko:\nusbip/usbip-host.ko:\nusbip/vhci-hcd.ko:\nnet/tls.ko:\n"
    )
    return tree


def of_module(cli: Cli, root: Path, name: str) -> dict[str, str]:
    result = cli("doctor", "--root", root, "-o", "json")
    assert result.code == 6
    found: list[dict[str, str]] = json.loads(result.out)
    return next(one for one in found if one["check"] == f"module {name}")


def test_r68_only_usbip_host_is_missing_and_import_still_works(cli: Cli, tree: SysTree) -> None:
    tree.proc("sys/kernel/osrelease", "6.1\n")
    (tree.root / "lib/modules/6.1").mkdir(parents=True)
    for name in ("usbip_core", "vhci_hcd", "tls"):
        (tree.sys / "module" / name).mkdir(parents=True)
    result = cli("doctor", "--root", tree.root, "-o", "json")
    failed = [one["check"] for one in json.loads(result.out) if one["result"] == "fail"]
    assert (result.code, failed) == (6, ["module usbip_host", "usbip-host"])
    assert [one["name"] for one in cli("list", "--root", tree.root, "-o", "json").json] != []
    assert cli("ports", "--root", tree.root, "-o", "json").json["free"] == {"high": 7, "super": 8}


def test_r68_without_vhci_local_devices_are_still_listed(cli: Cli, tmp_path: Path) -> None:
    tree = node_with_index(tmp_path)
    tree.controller().root_hub().plug(1, serial=b"A1")
    found = of_module(cli, tmp_path, "vhci_hcd")
    assert (found["seen"], found["remedy"]) == (
        "not loaded; without it no import",
        "run: modprobe vhci_hcd",
    )
    (stick,) = cli("list", "--root", tmp_path, "-o", "json").json
    assert (stick["name"], stick["usable"]) == ("usb-0781-5581-a1", True)


def test_r68_loading_switched_off_is_told_and_modprobe_is_not_the_remedy(
    cli: Cli, tmp_path: Path
) -> None:
    node_with_index(tmp_path).proc("sys/kernel/modules_disabled", "1\n")
    found = of_module(cli, tmp_path, "vhci_hcd")
    assert found["seen"].startswith("not loaded and forbidden; without it no import (")
    assert "kernel.modules_disabled=1" in found["seen"]
    assert "modprobe" not in found["remedy"]


def test_r68_lockdown_is_told_beside_the_remedy(cli: Cli, tmp_path: Path) -> None:
    security = node_with_index(tmp_path).sys / "kernel/security"
    security.mkdir(parents=True)
    (security / "lockdown").write_text("none [integrity] confidentiality\n")
    found = of_module(cli, tmp_path, "usbip_host")
    assert "the kernel is locked down (secure boot)" in found["seen"]
    assert found["remedy"] == "run: modprobe usbip_host"


def test_r68_built_in_needs_no_modprobe(cli: Cli, tmp_path: Path) -> None:
    node_with_index(tmp_path)
    (tmp_path / "lib/modules/6.1/modules.builtin").write_text("usbip/vhci-hcd.ko\n")
    found = of_module(cli, tmp_path, "vhci_hcd")
    assert (found["result"], found["seen"], found["remedy"]) == ("ok", "built in", "")


def test_json_has_one_object_a_check(cli: Cli, tree: SysTree) -> None:
    load_all(tree)
    found = cli("doctor", "--root", tree.root, "-o", "json").json
    assert found[0] == {
        "check": "module usbip_core", "result": "ok", "seen": "loaded", "remedy": "",
    }  # fmt: skip


def test_ports_in_error_are_a_warning(tree: SysTree) -> None:
    path = tree.sys / "devices/platform/vhci_hcd.0/status"
    path.write_text(path.read_text().replace("hs  0001 004", "hs  0001 007"))
    found = list(checks.import_layout(Settings(root=tree.root)))
    assert [one.level for one in found] == [Level.OK, Level.WARN]
    assert found[1].seen == "1 are in error and not used"


def test_a_full_table_of_bus_ids_is_a_warning(tree: SysTree) -> None:
    table = tree.usbip_host() / "match_busid"
    table.write_text(" ".join(f"1-{n}" for n in range(16)) + "\n")
    (found,) = checks.export_table(tree.root)
    assert (found.level, found.seen) == (Level.WARN, "16 of 16 bus ids in its table")
    assert "never unload usbip-host" in found.remedy  # the kernel would read freed memory


def test_kernel_without_tls_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sock: int) -> None:
        raise OSError(errno.ENOENT, "attach_ulp: No such file or directory")

    monkeypatch.setattr(ktls, "attach_ulp", refuse)
    (found,) = checks.kernel_tls()
    assert found.level is Level.FAIL
    refuses = "the kernel refuses TLS on a connection: No such file or directory"
    assert found.seen == f"{refuses}; no link is made (encryption: Required)"
    assert found.remedy == "run: modprobe tls"
    (found,) = checks.kernel_tls("Allowed")
    assert found.level is Level.WARN
    assert found.seen == f"{refuses}; links of this node are in clear (encryption: Allowed)"
    (found,) = checks.kernel_tls("Off")
    assert (found.level, found.seen) == (Level.WARN, "links are in clear: encryption is Off")


def test_a_missing_tls_module_fails_only_where_it_is_required(tree: SysTree) -> None:
    levels = {
        encryption: {one.check: one.level for one in checks.modules(tree.root, encryption)}
        for encryption in ("Required", "Allowed")
    }
    assert levels["Required"]["module tls"] is Level.FAIL
    assert levels["Allowed"]["module tls"] is Level.WARN
    assert levels["Allowed"]["module vhci_hcd"] is Level.FAIL


def test_tls_probe_gives_both_ends_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int, bytes, bytes]] = []
    monkeypatch.setattr(ktls, "attach_ulp", lambda sock: None)
    monkeypatch.setattr(
        ktls,
        "set_keys",
        lambda sock, *keys: given.append(keys),  # the bytes then go as they are
    )
    (found,) = checks.kernel_tls()
    assert found.level is Level.OK
    (sending, *keys), (receiving, *same) = given
    assert (sending, receiving) == (ktls.TX, ktls.RX)
    assert keys == same


@pytest.mark.parametrize(("now", "level"), [(0.0, Level.FAIL), (1_900_000_000.0, Level.OK)])
def test_a_clock_before_this_project_is_wrong(now: float, level: Level) -> None:
    (found,) = checks.clock(now)
    assert found.level is level


def test_certificates(cli: Cli, tmp_path: Path) -> None:
    settings = Settings(pki_dir=tmp_path / "pki")
    (found,) = checks.certificates(settings)
    assert found.level is Level.WARN
    assert "only --plain works" in found.seen
    assert cli("pki", "init", "--dir", tmp_path / "pki").code == 0
    assert cli("pki", "issue", "a", "--dir", tmp_path / "pki", "--days", 30).code == 0
    settings = Settings(pki_dir=tmp_path / "pki/nodes/a")
    today = datetime.now(UTC)
    for days, level, words in [
        (0, Level.OK, "for node a, "),
        (20, Level.WARN, "days left"),
        (40, Level.FAIL, "expired"),
        (-400, Level.FAIL, "not valid before"),
    ]:
        (found,) = checks.certificates(settings, (today + timedelta(days=days)).timestamp())
        assert (found.level, words in found.seen) == (level, True), found


def test_a_certificate_of_the_cluster_is_found_where_the_agent_keeps_it(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ca = authority.make_authority("CA", now)
    pair = authority.issue_node(ca, "a", [], now, timedelta(hours=24))
    sets.publish(tmp_path / "pki", {"tls.crt": pair.cert_pem(), "tls.key": pair.key_pem()})
    settings = Settings(pki_dir=tmp_path / "none", run_dir=tmp_path)
    for hours, level, words in [
        (1, Level.OK, "of the cluster, for node a, 23 hours left"),
        (30, Level.FAIL, "of the cluster, expired 6 hours ago"),
    ]:
        (found,) = checks.certificates(settings, (now + timedelta(hours=hours)).timestamp())
        assert (found.level, found.seen) == (level, words)


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch, tree: SysTree) -> None:
    def broken(root: Path, encryption: str) -> None:
        raise OSError(5, "read: Input/output error")

    monkeypatch.setattr(checks, "modules", broken)
    first = next(checks.run(Settings(root=tree.root), rooted=True))
    assert (first.level, first.check) == (Level.FAIL, "doctor")


def test_links_in_clear_are_named_and_how_bad_it_is_depends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (none,) = checks.links(port)
        assert (none.level, none.seen) == (Level.OK, f"no links on port {port}")
        with socket.create_connection(("127.0.0.1", port)):
            (found,) = checks.links(port)
            assert found.level is Level.FAIL
            assert found.seen == f"2 links on port {port}, in clear with 127.0.0.1"
            (allowed,) = checks.links(port, "Allowed")
            assert allowed.level is Level.WARN


def test_links_that_the_kernel_encrypts_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Endpoints("10.0.0.1", 5, "10.0.0.2", 3241)
    counters = Counters(rtt=1, sent=1, received=1, retransmits=0, encrypted=True)

    def found(port: int, *, served: bool = False) -> dict[Endpoints, Counters]:
        return {} if served else {ends: counters}

    monkeypatch.setattr("usbdra.transport.measure.links_to", found)
    (finding,) = checks.links(3241)
    assert (finding.level, finding.seen) == (Level.OK, "1 link on port 3241, all encrypted")
