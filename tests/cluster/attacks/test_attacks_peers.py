# SPDX-License-Identifier: Apache-2.0
"""Whoever reaches the exporter's port of node a: what it is told, what is written down of it.

Each case ends with the device as it was. Shown elsewhere: floods, slow bytes and fuzzing
(tests/contract/test_exporter_flood.py, tests/unit/exporter); a broken-into exporter towards its
agent (tests/unit/exporter/test_desk_threats.py); the wire without a disk's bytes
(tests/kernel/test_link.py); certificates that change under a running link
(tests/cluster/test_trust.py); one device for two claims, and forced deletions (R47, R48:
tests/cluster/test_fault_devices.py).
"""

from __future__ import annotations

import ssl
import struct
from functools import partial

import pytest

from tests.cluster.attacks import killing
from tests.cluster.attacks.attacker import Attacker, Ended, Outcome, ask_for
from tests.cluster.attacks.attempts import all_refused, not_entitled, wrong_peers
from tests.cluster.attacks.forger import HOUR
from tests.cluster.attacks.journal import Journal, Line
from tests.cluster.attacks.scene import OUTSIDE, PORT, Scene, until
from tests.cluster.attacks.urb import device_descriptor
from tests.cluster.faults import DISK, Reading, reader
from usbdra.transport import ktls
from usbdra.usbip import session, wire
from usbdra.usbip.extension import GrantRequest

ALERT, HANDSHAKE = 21, 22
CLOSE_NOTIFY, KEY_UPDATE = bytes.fromhex("0100"), bytes.fromhex("1800000100")
LISTENS = f"ss -tlnH sport = :{PORT} | grep -q ."
OP_REQ_EXPORT, OP_REQ_UNEXPORT = 0x8006, 0x8007
"""Of stock USB/IP (tools/usb/usbip/src/usbip_network.h): give and take back a device by request."""


def test_without_a_good_certificate_nothing_is_heard(scene: Scene) -> None:
    claim = scene.allocated("heard")
    uid, impostor = scene.uids["b"], scene.ours.impostor()
    log, audit = Journal(scene.a, "exporter"), Journal(scene.a, "agent")
    with scene.unchanged(), scene.on_b() as attacker:
        for identity, offers, said, logged in (
            (None, {}, "tlsv13 alert certificate required", "peer did not return a certificate"),
            (impostor.node("b", uid), {}, "tlsv1 alert unknown ca",
             "unable to get local issuer certificate"),
            (scene.ours.authority(), {}, "sslv3 alert unsupported certificate",
             "unsuitable certificate purpose"),
            (scene.ours.node("b", uid, begins=-2 * HOUR), {}, "sslv3 alert certificate expired",
             "certificate has expired"),
            (scene.ours.node("b", uid, begins=HOUR), {}, "sslv3 alert bad certificate",
             "certificate is not yet valid; check the clocks of both machines"),
            (scene.as_b, {"newest": ssl.TLSVersion.TLSv1_2}, "tlsv1 alert protocol version",
             "TLS handshake failed: unsupported protocol"),
            (scene.as_b, {"protocols": [ktls.CLEAR]}, "closed",
             "node b agrees to no encrypted link, which this end requires: its kernel has no TLS "
             "(`modprobe tls` there), or it has encryption: Off"),
        ):  # fmt: skip
            log.mark()
            assert attacker.grant(identity, scene.device, claim, **offers) == Outcome(said)
            assert log.said("connection failed")["message"].endswith(f": {logged}")
        log.mark()
        plain = wire.pack_header(wire.OP_REQ_IMPORT) + wire.pack_busid(scene.busid)
        assert attacker.raw(plain) == b""
        log.said("does not speak TLS")
        assert scene.outside.raw(b"") == b""
        log.said(f"connection refused: {OUTSIDE} is in none of the allowed networks")
        assert audit.decisions(0) == [], "the agent was not even asked"


def test_a_certificate_alone_opens_nothing(scene: Scene) -> None:
    """Wrong claims and wrong peers, with the device free; the claims' owners hear of it."""
    audit = Journal(scene.a, "agent")
    with scene.unchanged(), scene.on_b() as attacker:
        right = scene.allocated("right")
        attempts = [*not_entitled(scene), *wrong_peers(scene, right)]
        all_refused(scene, attacker, audit, attempts)
        for one in attempts:
            if one.claim is not None and one.claim.name in ("idle", "for-a", "going"):
                said = f"node a did not give device {scene.device} to b: {one.said}"
                assert scene.owner.event("Refused", one.claim.name) == said


def test_a_recorded_session_cannot_be_played_again(scene: Scene) -> None:
    log, audit = Journal(scene.a, "exporter"), Journal(scene.a, "agent")
    with scene.on_b() as attacker:
        recorded = record(scene, attacker)
        with scene.unchanged():
            audit.mark()
            replay(scene, attacker, log, recorded)
            assert audit.decisions(0) == [], "the agent was not even asked"


def record(scene: Scene, attacker: Attacker) -> bytes:
    """Every byte that went to the exporter in a session that had the device, which is back."""
    claim = scene.allocated("recorded")
    with attacker.wire(scene.as_b) as link:
        assert ask_for(link, scene.device, claim) == Outcome("granted", granted=scene.device)
        sent = bytes(link.sent)
    scene.given_back()
    scene.owner.delete("resourceclaim", claim.name)
    return sent


def replay(scene: Scene, attacker: Attacker, log: Journal, recorded: bytes) -> None:
    """The whole session, and what of it came after the handshake."""
    for said, part in (
        ("TLS handshake failed: decryption failed or bad record mac", recorded),
        ("peer's first TLS record is no client hello", last_record(recorded)),
    ):
        log.mark()
        assert scene.device.encode() not in attacker.raw(part)
        log.said(f": {said}")


def last_record(stream: bytes) -> bytes:
    """The last TLS record of a stream: five bytes of header, of which two are its length."""
    at = 0
    while (after := at + 5 + int.from_bytes(stream[at + 3 : at + 5], "big")) < len(stream):
        at = after
    return stream[at:]


def test_a_holder_is_not_disturbed(scene: Scene) -> None:
    """All of the above while a pod on b reads the stick, and what only a device in use is for."""
    log, audit = Journal(scene.a, "exporter"), Journal(scene.a, "agent")
    with scene.on_b() as attacker:
        recorded = record(scene, attacker)
        mine = scene.write(scene.disk_claim("mine"))
        scene.owner.apply(reader("holder", "mine", "b"))
        scene.owner.run("holder")
        reading = Reading(scene.bed, "b", scene.owner, "holder")
        reading.wait()
        port = scene.b.call("usb.used")
        with scene.unchanged():
            right = scene.allocated("right")
            all_refused(scene, attacker, audit, [*not_entitled(scene), *wrong_peers(scene, right)])
            replay(scene, attacker, log, recorded)
            busy = attacker.grant(scene.as_b, scene.device, right)
            said = f"device {scene.device} is in use by claim {mine} of b at {scene.b.ip}:"
            assert (busy.said[: len(said)], busy.reason, busy.granted) == (said, "Busy", "")
            assert attacker.stock(scene.as_b, scene.busid) == Outcome("status 1")
            for request in (OP_REQ_EXPORT, OP_REQ_UNEXPORT):
                message = attacker.message(scene.as_b, wire.pack_header(request), wire.HEADER_SIZE)
                answer = wire.parse_header(message)
                assert (answer.code, answer.status) == (request & 0x7FFF, wire.Status.ERROR)
        reading.wait()
        assert reading.failures() == []
        assert scene.b.call("usb.used") == port, "the same link"
        held = scene.owner.shell("holder", f"sha256sum {DISK}").split()[0]
        assert held == scene.stick.sha256()
    scene.owner.delete("pod", "holder")
    scene.given_back()


def test_r27_a_record_that_is_no_data_ends_the_link_and_the_next_one_works(scene: Scene) -> None:
    """What the kernel leaves to user space ends the link for all to see (RFC 8446 4.6.3, 6.1)."""
    claim = scene.allocated("rekeyed")
    facts = scene.a.call("usb.find", scene.stick.serial)
    devid = facts["busnum"] << 16 | facts["devnum"]
    ids = struct.pack("<HH", *(int(facts[name], 16) for name in ("idVendor", "idProduct")))
    with scene.on_b() as attacker:
        for kind, body in (HANDSHAKE, KEY_UPDATE), (ALERT, CLOSE_NOTIFY):
            with attacker.wire(scene.as_b) as link:
                assert ask_for(link, scene.device, claim).granted == scene.device
                assert device_descriptor(link, devid)[8:12] == ids
                link.record(kind, body)
                with pytest.raises(Ended, match="closed"):
                    link.read(1)
            scene.given_back()


def _decided(step: killing.Step, line: Line) -> bool:
    return line.get("decision") == step.decision


def test_the_exporter_killed_at_every_step(scene: Scene) -> None:
    """The device comes back each time, and its claim is served in the end."""
    claim = scene.allocated("wanted")
    before, audit = scene.state(), Journal(scene.a, "agent")
    with scene.on_b() as attacker:
        for step in killing.STEPS:
            with attacker.wire(scene.as_b) as link:
                link.ask(*session.request_inventory())
                killing.stop_agent(scene)
                request, _ = session.request_grant(GrantRequest(scene.device, claim))
                link.write(request)
                audit.mark()
                killing.kill_at(scene, step)
                if step.cut_off:
                    with pytest.raises(Ended):
                        link.read(1)
            audit.wait(partial(_decided, step), step.name)
            scene.given_back()
            until(scene.a, LISTENS)
    scene.forget()
    scene.write(scene.disk_claim("mine"))
    scene.owner.apply(reader("user", "mine", "b"))
    scene.owner.run("user")
    reading = Reading(scene.bed, "b", scene.owner, "user")
    reading.wait()
    killing.kill(scene)
    until(scene.a, LISTENS)
    reading.wait()
    assert reading.failures() == []
    scene.owner.delete("pod", "user")
    scene.given_back()
    after = scene.state()
    assert (after.medium, after.held) == (before.medium, before.held)
