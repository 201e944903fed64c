# SPDX-License-Identifier: Apache-2.0
"""Certificates from the cluster and the namespace fence, on real kubelets and links."""

from __future__ import annotations

import time
from typing import Any

from cryptography import x509

from tests.cluster import driver
from tests.cluster.assigning import assign
from tests.cluster.bed import ClusterBed
from tests.cluster.claims import VHCI, claim, consumer, parameters, serial, usb_claim
from tests.cluster.gadgets import Gadgets
from tests.cluster.space import Space
from usbdra.pki import authority

PKI = "/run/usbdra/pki/current"


def wait_tainted(bed: ClusterBed, device: str, namespace: str) -> None:
    """Wait until the slices say whose the device is: the scheduler goes by them."""

    def find(slices: list[Any]) -> bool | None:
        devices = [d for item in slices for d in item.spec.devices or () if d.name == device]
        return True if any(t.value == namespace for d in devices for t in d.taints or ()) else None

    bed.api.wait(bed.api.resource.list_resource_slice, find, f"{device} is {namespace}'s")


def test_nodes_have_certificates_of_the_cluster_and_links_work(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "TRUST001", size_mib=4)
    stick.fill()
    space.apply(
        usb_claim("stick", serial("TRUST001"), childNodes=["block"], owner={"uid": 1000}),
        consumer("reader", "stick", node="b"),
    )
    assert space.run("reader").spec.node_name == "b"
    read = space.shell("reader", "sha256sum /dev/usbdra/usb/block0").split()[0]
    assert read == stick.sha256()
    for name in ("a", "b"):
        machine = usb.machine(name)
        assert machine.sh(f"stat -Lc '%a %u' {PKI}/tls.key").split()[0] == "600"
        cert = certificate(usb, name)
        uid = usb.api.core.read_node(name).metadata.uid
        assert cert.subject == authority.node_subject(name, uid)
        assert cert.issuer.rfc4514_string().startswith("CN=usbdra CA of ")


def test_a_running_link_does_not_notice_that_every_certificate_changes_twice(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    stick = gadgets.plug("a", "TRUST004", size_mib=16)
    stick.fill()
    space.apply(
        usb_claim("stick", serial("TRUST004"), childNodes=["block"], owner={"uid": 1000}),
        consumer("reader", "stick", node="b"),
    )
    space.run("reader")
    (port,) = usb.machine("b").call("usb.used")
    loop = "while :; do dd if=/dev/usbdra/usb/block0 bs=64k iflag=direct 2>/dev/null | sha256sum"
    space.shell("reader", f"({loop} >> /tmp/sums; done) > /dev/null 2>&1 &")
    for _ in range(2):
        before = {name: certificate(usb, name) for name in ("a", "b")}
        usb.api.kubectl("-n", driver.NAMESPACE, "delete", "secret", "usbdra-ca")
        for name, old in before.items():
            assert signer(wait_changed(usb, name, old)) != signer(old)
    (again,) = usb.machine("b").call("usb.used")
    assert again == port, "the same link"
    script = (
        "n=$(wc -l < /tmp/sums); while [ $(wc -l < /tmp/sums) -lt $((n + 2)) ]; do sleep 1; done"
    )
    space.shell("reader", script)
    sums = {line.split()[0] for line in space.shell("reader", "cat /tmp/sums").splitlines()}
    assert sums == {stick.sha256()}


def certificate(bed: ClusterBed, node: str) -> x509.Certificate:
    """A node's certificate now."""
    return x509.load_pem_x509_certificate(bed.machine(node).read(f"{PKI}/tls.crt"))


def signer(cert: x509.Certificate) -> bytes | None:
    """The key that signed it; two CAs of one minute have the same name."""
    found = cert.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    return found.value.key_identifier


def wait_changed(bed: ClusterBed, node: str, old: x509.Certificate) -> x509.Certificate:
    """A node's certificate once it is another one; files tell nobody, so this looks."""
    deadline = time.monotonic() + 90
    while (new := certificate(bed, node)) == old:
        assert time.monotonic() < deadline, f"node {node} keeps its certificate"
        time.sleep(0.5)
    return new


def test_a_device_named_in_a_copied_config_is_refused_where_it_is(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    """No taint stands before a port of the own node: the exporting node has the last word."""
    gadgets.plug("a", "TRUST002")
    device = str(gadgets.published("TRUST002")["device"])
    owner = Space(space.api)
    try:
        assign(usb, device, owner.name)
        port = {"name": "usb", "exactly": {"deviceClassName": VHCI}}
        target = {"name": device, "node": "a"}
        space.apply(
            claim("copied", [port], config=[parameters(["usb"], device=target)]),
            consumer("thief", "copied", node="b"),
        )
        said = space.event("FailedPrepareDynamicResources", "thief", "another namespace")
        assert owner.name not in said
        assert usb.machine("b").call("usb.used") == []
        space.delete("pod", "thief")
        owner.apply(
            claim("own", [port], config=[parameters(["usb"], device=target)]),
            consumer("holder", "own", node="b"),
        )
        owner.run("holder")
    finally:
        owner.remove()
        assign(usb, device, "")


def test_a_device_of_another_namespace_is_not_allocated(
    usb: ClusterBed, gadgets: Gadgets, space: Space
) -> None:
    gadgets.plug("a", "TRUST003")
    device = str(gadgets.published("TRUST003")["device"])
    owner = Space(space.api)
    try:
        assign(usb, device, owner.name)
        wait_tainted(usb, device, owner.name)
        space.apply(usb_claim("other", serial("TRUST003")), consumer("outsider", "other"))
        space.pending("outsider")
        assert "allocation" not in space.claim("other").get("status", {})
    finally:
        owner.remove()
        assign(usb, device, "")
