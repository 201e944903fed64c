# SPDX-License-Identifier: Apache-2.0
"""A namespace in memory for attachments: carries out acts as an API server, a scheduler, a
kubelet and an agent would.

Owns objects, uids, finalizers and owner references. The controller under test is AttachWorld with
the two decide functions; `settle` runs it until nothing is left to do, or for a number of acts.
"""

from __future__ import annotations

import itertools
from collections import deque
from copy import deepcopy
from typing import Any

from tests.unit.controller.make import CONTRACT, NOW, STICK, claim, device
from usbdra.controller import attach, machines, templates
from usbdra.controller.acts import Act, Apply, Create, Delete, What
from usbdra.controller.attachworld import AttachWorld, Item

SPACE = "lab"
LABEL = CONTRACT.machine_key
IMAGE = {"image": "usbdra:1", "imagePullPolicy": "IfNotPresent"}
MAX_STEPS = 300
Stored = dict[str, Any]


class AttachCluster:
    """See the module."""

    def __init__(self) -> None:
        self.objects: dict[tuple[What, str], Stored] = {}
        self.machine_pods: dict[str, Stored] = {}
        self.apps: dict[str, Stored] = {}
        self.writes: list[Act] = []
        self.scheduling = True
        self._ids = itertools.count(1)
        self.restart()

    def restart(self) -> None:
        """A new controller, which knows what the API holds and nothing else."""
        self.world = AttachWorld(CONTRACT, IMAGE, "run/qmp.sock", LABEL)
        self._todo: deque[Item] = deque()
        for (what, name), item in self.objects.items():
            self._look(self.world.put(what, (SPACE, name), deepcopy(item)))
        for name, item in self.machine_pods.items():
            self._look(self.world.put_machine_pod((SPACE, name), deepcopy(item)))

    def follow(self) -> None:
        """Pods that attachments name are heard of; those that none names any more are not."""
        for key in self.world.named_pods:
            self._look(self.world.put_named_pod(key, deepcopy(self.apps.get(key[1]))))

    def app(self, name: str, *containers: str, life: int = 1, **more: Any) -> None:
        """A pod runs, each container in this life of its; 0: it does not run now."""
        names = containers or ("main",)
        state: Stored = {"running": {}} if life else {"waiting": {}}
        self.apps[name] = {
            "metadata": {"name": name, "namespace": SPACE, "uid": f"uid-{name}", **more},
            "spec": {"nodeName": "a", "containers": [{"name": n} for n in names]},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": n, "containerID": f"containerd://{n}-{life}", "state": state}
                    for n in names
                ],
            },
        }
        self.follow()

    def settle(self, acts: int = 10_000) -> None:
        """Work until all is done, or as many acts were carried out."""
        for _ in range(MAX_STEPS):
            if not self._todo:
                return
            item = self._todo.popleft()
            for act in self._decide(item):
                if acts == 0:
                    self._todo.appendleft(item)
                    return
                acts -= 1
                self.do(act)
        raise AssertionError(f"no end after {MAX_STEPS} looks; last: {self.writes[-6:]}")

    def _decide(self, item: Item) -> tuple[Act, ...]:
        key = (item.namespace, item.name)
        if item.what is What.MACHINE:
            machine = self.world.machine(key)
            return machines.decide(machine).acts if machine else ()
        seen = self.world.attachment(key, NOW)
        return attach.decide(seen).acts if seen else ()

    # what people and platforms do

    def assign(self, name: str = STICK, node: str = "a", ready: bool = True) -> None:
        """The namespace may use a device, which is on that node."""
        spec = templates.claim_spec(device(node, name), SPACE, CONTRACT)
        owner = {"apiVersion": "v1", "kind": "USBDevice", "name": name, "uid": "u"}
        self._store(What.TEMPLATE, name, templates.template(name, spec, owner, CONTRACT))
        state = {"type": "Ready", "status": str(ready), "reason": "Ready", "message": ""}
        self._store(What.DEVICE, name, {"metadata": {}, "status": {"conditions": [state]}})

    def withdraw(self, name: str = STICK) -> None:
        """As assignment.py does: the template first."""
        self._store(What.TEMPLATE, name, None)

    def attach(self, name: str, machine: str = "vm", device: str = STICK) -> None:
        spec = {"device": device, "virtualMachine": {"name": machine}}
        self._store(What.ATTACHMENT, name, {"metadata": {}, "spec": spec})

    def delete(self, what: What, name: str) -> None:
        """As `kubectl delete`: what has a finalizer, is in use or runs is only marked."""
        item = deepcopy(self.objects[what, name])
        waits = item["metadata"].get("finalizers") or item.get("status", {}).get("reservedFor")
        if waits or what is What.POD:
            item["metadata"].setdefault("deletionTimestamp", "2026-01-31T12:00:00Z")
            self._store(what, name, item)
            return
        self._drop(what, name)

    def run(self, pod: str, node: str = "a", machine: str = "vm", **more: Any) -> None:
        """A pod of a machine runs."""
        number = next(self._ids)
        meta = {
            "name": pod, "namespace": SPACE, "uid": f"uid-{pod}", "labels": {LABEL: machine},
            "creationTimestamp": f"2026-01-31T12:{number // 60:02}:{number % 60:02}Z", **more,
        }  # fmt: skip
        self._set_pod(pod, {"metadata": meta, "spec": {"nodeName": node}, "status": {}})

    def ends(self, pod: str) -> None:
        """The machine's pod is told to end, and still runs."""
        item = deepcopy(self.machine_pods[pod])
        item["metadata"]["deletionTimestamp"] = "2026-01-31T13:00:00Z"
        self._set_pod(pod, item)

    def gone(self, pod: str) -> None:
        del self.machine_pods[pod]
        self._look(self.world.put_machine_pod((SPACE, pod), None))

    def _set_pod(self, name: str, item: Stored) -> None:
        item["status"] = {"phase": "Running"}
        self.machine_pods[name] = item
        self._look(self.world.put_machine_pod((SPACE, name), deepcopy(item)))

    def list_devices(self, machine: str, *devices: str) -> None:
        """spec.usbDevices of a VirtualMachine."""
        old = self.objects.get((What.MACHINE, machine), {"metadata": {}})
        spec = {"usbDevices": [{"name": name} for name in devices]}
        self._store(What.MACHINE, machine, {**deepcopy(old), "spec": spec})

    # what scheduler, kubelet and agent do

    def schedule(self, number: int = 1) -> None:
        """Holders start: their claims are allocated, their devices fetched and plugged in."""
        for what, name in list(self.objects):
            if what is What.POD and not self.going(What.POD, name):
                claimed = self.objects[What.CLAIM, name]
                if claimed.get("status"):
                    continue
                pod = deepcopy(self.objects[What.POD, name])
                pod["spec"]["nodeName"] = _wanted_node(pod["spec"])
                self._store(What.POD, name, pod)
                self.hold(name)
                self.settle()
                self.plug(name, {"bus": 0, "port": number})

    def hold(self, name: str, ready: bool = True, reason: str = "Attached") -> None:
        item = deepcopy(self.objects[What.CLAIM, name])
        device_name = item["metadata"]["labels"][CONTRACT.device_key]
        item["status"] = claim(
            SPACE, name, device=device_name, pods=(name,), ready=ready, reason=reason
        )["status"]
        self._store(What.CLAIM, name, item)

    def plug(self, name: str, address: dict[str, int], **more: Any) -> None:
        """As the agent reports in status.plug."""
        uid = self.objects[What.POD, name]["metadata"]["labels"][CONTRACT.attachment_key]
        key = next(n for (w, n), i in self.objects.items() if i["metadata"]["uid"] == uid)
        item = deepcopy(self.objects[What.ATTACHMENT, key])
        target = item["status"]["target"]
        item["status"]["plug"] = {
            "podUID": target["uid"],
            "claimUID": item["status"]["claimUID"],
            "attached": True,
            **({"address": address} if target["adapter"] == "qmp" else {}),
            **({"containerID": target["containerID"]} if target["adapter"] == "pod" else {}),
            **more,
        }
        self._store(What.ATTACHMENT, key, item)

    def end_holders(self) -> None:
        """Kubelets end pods that are told to: the agent unplugs, claims are freed."""
        for what, name in list(self.objects):
            if what is What.POD and self.going(What.POD, name):
                self._drop(What.POD, name)
                freed = deepcopy(self.objects[What.CLAIM, name])
                freed.pop("status", None)
                gone = "deletionTimestamp" in freed["metadata"]
                self._store(What.CLAIM, name, None if gone else freed)

    # what the controller asks for

    def do(self, act: Act) -> None:
        self.writes.append(act)
        assert act.namespace == SPACE
        if isinstance(act, Create):
            name = act.body["metadata"]["name"]
            assert (act.what, name) not in self.objects, f"{name} is there already"
            self._store(act.what, name, deepcopy(act.body))
        elif isinstance(act, Delete):
            if (act.what, act.name) in self.objects:
                assert self.get(act.what, act.name)["metadata"]["uid"] == act.uid
                self.delete(act.what, act.name)
        elif isinstance(act, Apply):
            name = act.body["metadata"]["name"]
            item = deepcopy(self.objects[act.what, name])
            assert act.body["metadata"]["uid"] == item["metadata"]["uid"]
            plug = item.get("status", {}).get("plug")
            item["status"] = deepcopy(act.body["status"]) | ({"plug": plug} if plug else {})
            self._store(act.what, name, item)
        else:
            item = deepcopy(self.objects[act.what, act.name])
            meta = act.patch["metadata"]
            assert meta["resourceVersion"] == item["metadata"]["resourceVersion"], "old version"
            item["metadata"]["finalizers"] = meta["finalizers"]
            if not meta["finalizers"] and "deletionTimestamp" in item["metadata"]:
                self._drop(act.what, act.name)
            else:
                self._store(act.what, act.name, item)

    def get(self, what: What, name: str) -> Stored:
        return self.objects[what, name]

    def names(self, what: What) -> list[str]:
        return sorted(name for kind, name in self.objects if kind is what)

    def going(self, what: What, name: str) -> bool:
        return "deletionTimestamp" in self.objects[what, name]["metadata"]

    def condition(self, name: str, kind: str = "Attached") -> tuple[str, str]:
        conditions = self.get(What.ATTACHMENT, name)["status"]["conditions"]
        (found,) = [c for c in conditions if c["type"] == kind]
        return found["reason"], found["message"]

    def nodes(self) -> list[str]:
        """Where holders are."""
        pods = [self.get(What.POD, name)["spec"] for name in self.names(What.POD)]
        return [pod.get("nodeName") or _wanted_node(pod) for pod in pods]

    def _drop(self, what: What, name: str) -> None:
        uid = self.objects[what, name]["metadata"]["uid"]
        self._store(what, name, None)
        for other, key in list(self.objects):
            if (other, key) in self.objects:
                owners = self.objects[other, key]["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == uid for owner in owners):
                    self.delete(other, key)

    def _store(self, what: What, name: str, item: Stored | None) -> None:
        if item is None:
            self.objects.pop((what, name), None)
        else:
            number = next(self._ids)
            meta = item["metadata"]
            meta.setdefault("uid", f"{what.value}-{number}")
            meta.setdefault("creationTimestamp", "2026-01-31T12:00:00Z")
            meta |= {"name": name, "namespace": SPACE, "resourceVersion": str(number)}
            self.objects[what, name] = item
        self._look(self.world.put(what, (SPACE, name), deepcopy(item)))

    def _look(self, items: set[Item]) -> None:
        self._todo.extend(item for item in sorted(items, key=str) if item not in self._todo)


def _wanted_node(spec: Stored) -> str:
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (field,) = terms["nodeSelectorTerms"][0]["matchFields"]
    return str(field["values"][0])
