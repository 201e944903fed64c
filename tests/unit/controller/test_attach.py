# SPDX-License-Identifier: Apache-2.0
"""USBAttachments of virtual machines: the order of things, and every reason."""

from __future__ import annotations

import pytest

from tests.unit.controller.attachcluster import LABEL, SPACE, AttachCluster
from tests.unit.controller.make import CONTRACT, STICK, device
from usbdra.controller import holder, templates
from usbdra.controller.acts import Create, Delete, Patch, What
from usbdra.controller.published import Reach
from usbdra.plugin.config import merge

MOUSE = "usb-046d-c077-port-1-0a0b0c0d"


@pytest.fixture
def cluster() -> AttachCluster:
    """A namespace with a device, and a machine that runs on node a."""
    made = AttachCluster()
    made.assign()
    made.run("vm-1")
    made.settle()
    return made


def attached(cluster: AttachCluster) -> None:
    cluster.attach("one")
    cluster.settle()
    cluster.schedule()
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToVirtualMachine"


def test_on_the_way_in_the_finalizer_is_first_and_the_holder_last(cluster: AttachCluster) -> None:
    cluster.attach("one")
    cluster.settle()
    order = [act.what for act in cluster.writes if isinstance(act, (Create, Patch))]
    assert order == [What.ATTACHMENT, What.CLAIM, What.POD]
    (name,) = cluster.names(What.POD)
    status = cluster.get(What.ATTACHMENT, "one")["status"]
    assert (status["holderName"], status["claimName"]) == (name, name)
    assert status["target"] == {
        "adapter": "qmp", "pod": "vm-1", "uid": "uid-vm-1", "socket": "run/qmp.sock", "bus": "",
    }  # fmt: skip
    assert cluster.condition("one") == ("InProgress", f"pod {name} waits for the scheduler")
    cluster.schedule(3)
    cluster.settle()
    status = cluster.get(What.ATTACHMENT, "one")["status"]
    assert (status["nodeName"], status["address"]) == ("a", {"bus": 0, "port": 3})
    assert cluster.condition("one") == (
        "AttachedToVirtualMachine", "in virtual machine vm (pod vm-1, node a)",
    )  # fmt: skip


def test_on_the_way_out_the_holder_is_first_and_the_finalizer_last(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.writes.clear()
    cluster.delete(What.ATTACHMENT, "one")
    cluster.settle()
    assert [act.what for act in cluster.writes if isinstance(act, Delete)] == [What.POD]
    assert cluster.condition("one", "Ready")[0] == "Detaching"
    assert cluster.names(What.CLAIM)  # in use until the holder has ended
    cluster.end_holders()
    cluster.settle()
    assert not cluster.objects.keys() & {(What.ATTACHMENT, "one")}
    assert cluster.names(What.CLAIM) == cluster.names(What.POD) == []


def test_the_claim_is_its_own_keeps_drivers_off_and_names_the_device(
    cluster: AttachCluster,
) -> None:
    """R67: for a machine no driver of the node is bound, and no child node is given."""
    cluster.attach("one")
    cluster.settle()
    (name,) = cluster.names(What.CLAIM)
    spec = cluster.get(What.CLAIM, name)["spec"]
    wanted = templates.claim_spec(device(), SPACE, CONTRACT)
    assert spec["devices"]["requests"] == wanted["devices"]["requests"]
    settings = merge(
        CONTRACT.driver, [c["opaque"]["parameters"] for c in spec["devices"]["config"]]
    )
    assert (settings.host_drivers, settings.child_nodes, settings.target) == (False, (), None)


def test_the_claim_is_not_taken_for_one_of_the_devices(cluster: AttachCluster) -> None:
    cluster.attach("one")
    cluster.settle()
    (name,) = cluster.names(What.CLAIM)
    assert not templates.is_ours(cluster.get(What.CLAIM, name), CONTRACT)


def test_a_device_named_in_parameters_stays_named() -> None:
    spec = templates.claim_spec(device(reach=Reach.NODE), SPACE, CONTRACT)
    template = templates.template(STICK, spec, {"uid": "u"}, CONTRACT)
    meta = {"name": "one", "namespace": SPACE, "uid": "x"}
    made = holder.claim({"metadata": meta, "spec": {"device": STICK}}, template, CONTRACT)
    config = made["spec"]["devices"]["config"]
    settings = merge(CONTRACT.driver, [c["opaque"]["parameters"] for c in config])
    assert settings.target is not None
    assert (settings.target.name, settings.host_drivers) == (STICK, False)


def test_the_holder_passes_the_restricted_pod_security_standard(cluster: AttachCluster) -> None:
    cluster.attach("one")
    cluster.settle()
    spec = cluster.get(What.POD, cluster.names(What.POD)[0])["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("device_name", "reason", "message"),
    [("other", "NotFound", "namespace lab has no USBDevice other; an administrator assigns it")],
)
def test_a_device_of_another_namespace_is_refused_with_the_reason(
    cluster: AttachCluster, device_name: str, reason: str, message: str
) -> None:
    cluster.attach("one", device=device_name)
    cluster.settle()
    assert cluster.condition("one", "Ready") == (reason, message)
    assert cluster.condition("one")[0] == "Available"
    assert cluster.names(What.POD) == []


def test_a_device_has_one_attachment_and_the_next_takes_over(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.run("other-1", machine="other")
    cluster.attach("two", machine="other")
    cluster.attach("again")
    cluster.settle()
    for name in ("two", "again"):
        assert cluster.condition(name, "Ready") == ("InUse", "USBAttachment one has the device")
    cluster.delete(What.ATTACHMENT, "again")
    cluster.delete(What.ATTACHMENT, "one")
    cluster.settle()
    assert cluster.condition("two", "Ready")[0] == "InUse"
    assert len(cluster.names(What.POD)) == 1
    cluster.end_holders()
    cluster.settle()
    cluster.schedule()
    cluster.settle()
    assert cluster.condition("two")[0] == "AttachedToVirtualMachine"


def test_who_has_the_device_keeps_it_from_one_of_the_same_second(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.attach("earlier-in-the-alphabet")
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToVirtualMachine"


def test_who_has_a_claim_keeps_it_from_one_of_the_same_second(cluster: AttachCluster) -> None:
    """The status, which tells of the claim, is behind the claim."""
    cluster.attach("two")
    cluster.settle(acts=2)  # finalizer and status: the claim comes next
    cluster.settle(acts=1)
    assert cluster.names(What.CLAIM) != []
    assert "claimName" not in cluster.get(What.ATTACHMENT, "two")["status"]
    cluster.attach("one", machine="other")
    cluster.settle()
    assert cluster.condition("one", "Ready") == ("InUse", "USBAttachment two has the device")
    cluster.schedule()
    cluster.settle()
    assert cluster.condition("two")[0] == "AttachedToVirtualMachine"
    claims = [act for act in cluster.writes if isinstance(act, Create) and act.what is What.CLAIM]
    assert len(claims) == 1


def test_the_ninth_device_of_a_machine_is_refused_and_hides_no_other(
    cluster: AttachCluster,
) -> None:
    for number in range(9):
        cluster.assign(f"usb-{number}")
        cluster.attach(f"at-{number}", device=f"usb-{number}")
        cluster.settle()
    assert cluster.condition("at-8", "Ready") == (
        "TooManyDevices", "virtual machine vm has 8 devices",
    )  # fmt: skip
    assert len(cluster.names(What.POD)) == 8
    cluster.delete(What.ATTACHMENT, "at-3")
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert cluster.condition("at-8", "Ready")[0] == "Ready"


def test_a_machine_that_does_not_run_has_no_holder_and_gets_it_when_it_does() -> None:
    cluster = AttachCluster()
    cluster.assign()
    cluster.attach("one")
    cluster.settle()
    assert cluster.condition("one", "Ready") == ("NotRunning", "virtual machine vm does not run")
    cluster.run("vm-1")
    cluster.settle()
    assert cluster.nodes() == ["a"]


def test_r65_a_restarted_machine_gets_the_device_after_the_old_pod_released_it(
    cluster: AttachCluster,
) -> None:
    attached(cluster)
    cluster.ends("vm-1")
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToVirtualMachine"  # its guest may still write
    cluster.run("vm-2")
    cluster.settle()
    (name,) = cluster.names(What.POD)
    assert cluster.going(What.POD, name)
    assert cluster.get(What.ATTACHMENT, "one")["status"]["target"]["pod"] == "vm-1"
    cluster.end_holders()
    cluster.settle()
    assert cluster.get(What.ATTACHMENT, "one")["status"]["target"]["pod"] == "vm-2"
    assert cluster.condition("one")[0] == "InProgress"
    cluster.schedule()
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToVirtualMachine"
    cluster.gone("vm-1")  # ends late
    cluster.settle()
    assert cluster.condition("one")[0] == "AttachedToVirtualMachine"


def test_r66_a_machine_on_another_node_never_has_two_sessions(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.run("vm-2", node="b")  # the target of a migration: the source still runs
    cluster.settle()
    assert cluster.nodes() == ["a"]
    cluster.ends("vm-1")
    cluster.settle()
    assert cluster.nodes() == ["a"]
    assert cluster.condition("one")[1].endswith("on node a is giving the device back")
    cluster.end_holders()
    cluster.settle()
    assert cluster.nodes() == ["b"]


def test_a_stopped_machine_gives_the_device_back(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.gone("vm-1")
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert cluster.names(What.POD) == cluster.names(What.CLAIM) == []
    assert cluster.condition("one", "Ready")[0] == "NotRunning"
    assert cluster.condition("one")[0] == "Available"


def test_a_withdrawn_device_stays_until_the_machine_gives_it_back(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.withdraw()
    cluster.settle()
    assert cluster.condition("one", "Ready")[0] == "Withdrawn"
    assert cluster.condition("one")[0] == "AttachedToVirtualMachine"
    cluster.gone("vm-1")
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert cluster.names(What.POD) == cluster.names(What.CLAIM) == []


def test_a_device_withdrawn_by_force_leaves_its_machine_in_order(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.withdraw()
    cluster.delete(What.POD, cluster.names(What.POD)[0])  # as assignment.py does with force
    cluster.settle()
    assert cluster.names(What.CLAIM)
    cluster.end_holders()
    cluster.settle()
    assert cluster.names(What.POD) == cluster.names(What.CLAIM) == []
    assert cluster.condition("one", "Ready")[0] == "Withdrawn"


def test_r69_a_device_that_moved_is_claimed_anew_where_it_is(cluster: AttachCluster) -> None:
    attached(cluster)
    before = cluster.names(What.CLAIM)
    cluster.assign(node="c")
    cluster.settle()
    cluster.end_holders()
    cluster.settle()
    assert cluster.names(What.CLAIM) == before
    spec = cluster.get(What.CLAIM, before[0])["spec"]
    (selector,) = spec["devices"]["requests"][0]["exactly"]["selectors"]
    assert '.node == "c"' in selector["cel"]["expression"]
    assert len(cluster.names(What.POD)) == 1


def test_a_holder_that_failed_is_made_again(cluster: AttachCluster) -> None:
    attached(cluster)
    (name,) = cluster.names(What.POD)
    item = cluster.get(What.POD, name) | {"status": {"phase": "Failed"}}
    cluster._store(What.POD, name, item)
    cluster.settle()
    assert cluster.going(What.POD, name)
    cluster.end_holders()
    cluster.settle()
    assert not cluster.going(What.POD, name)


@pytest.mark.parametrize("reason", ["LinkLost", "NoFreeUSBIPPort"])
def test_what_the_node_says_of_the_claim_is_said_of_the_attachment(
    cluster: AttachCluster, reason: str
) -> None:
    attached(cluster)
    cluster.hold(cluster.names(What.POD)[0], ready=False, reason=reason)
    cluster.settle()
    assert cluster.condition("one") == (reason, "as said")
    assert "address" in cluster.get(What.ATTACHMENT, "one")["status"]


def test_a_plug_that_failed_is_said_in_the_agents_words(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.plug(
        cluster.names(What.POD)[0], {}, attached=False, reason="PlugFailed", message="no free port"
    )
    cluster.settle()
    assert cluster.condition("one") == ("PlugFailed", "no free port")
    assert "address" not in cluster.get(What.ATTACHMENT, "one")["status"]


def test_r65_what_an_agent_said_of_an_earlier_pod_is_not_believed(cluster: AttachCluster) -> None:
    attached(cluster)
    (name,) = cluster.names(What.POD)
    cluster.plug(name, {"bus": 0, "port": 1}, podUID="uid-of-before")
    cluster.settle()
    assert cluster.condition("one")[0] == "InProgress"


def test_a_holder_that_a_user_wrote_over_reaches_no_other_machine(cluster: AttachCluster) -> None:
    attached(cluster)
    cluster.run("other-1", machine="other")
    (name,) = cluster.names(What.POD)
    item = cluster.get(What.POD, name)
    item["metadata"]["annotations"][CONTRACT.key("target")] = "uid-other-1"
    cluster._store(What.POD, name, item)
    cluster.settle()
    assert "target" not in cluster.get(What.ATTACHMENT, "one")["status"]
    assert cluster.going(What.POD, name)


def test_pods_say_where_their_socket_is(cluster: AttachCluster) -> None:
    cluster.run("x-1", machine="x", annotations={CONTRACT.key("qmp"): "vol/a/b.sock"})
    cluster.attach("one", machine="x")
    cluster.settle()
    assert cluster.get(What.ATTACHMENT, "one")["status"]["target"]["socket"] == "vol/a/b.sock"
    assert LABEL == "virtualization.deckhouse.io/virtual-machine"


def test_a_crash_after_any_act_changes_nothing_of_the_end(cluster: AttachCluster) -> None:
    for acts in range(8):
        one = AttachCluster()
        one.assign()
        one.run("vm-1")
        one.attach("one")
        one.settle(acts)
        one.restart()
        one.settle()
        one.schedule()
        one.settle()
        assert one.condition("one")[0] == "AttachedToVirtualMachine"
        one.delete(What.ATTACHMENT, "one")
        one.settle(acts)
        one.restart()
        one.settle()
        one.end_holders()
        one.settle()
        assert not {What.ATTACHMENT, What.CLAIM, What.POD} & {what for what, _ in one.objects}
