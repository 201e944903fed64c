# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory for decisions: carries out acts as an API server and its controllers would.

Owns objects, uids, owner references, the claims' own finalizer and what a deleted namespace takes
along. The controller under test is World and decide; `settle` runs it until nothing is left to do,
or for a number of acts, as a crash would end it.
"""

from __future__ import annotations

import itertools
from collections import deque
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from tests.unit.controller.make import CONTRACT, NOW, claim, part
from usbdra.controller.acts import Act, Apply, Delete, Patch, What
from usbdra.controller.published import Published
from usbdra.controller.reconcile import Namespace, decide
from usbdra.controller.world import Key, World

GRACE = timedelta(seconds=600)
MAX_STEPS = 200


class Conflict(Exception):
    """What the API server answers to a write on an old view."""


class Cluster:
    """See the module."""

    def __init__(self) -> None:
        self.now: datetime = NOW
        self.objects: dict[tuple[What, str, str], dict[str, Any]] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.nodes: dict[str, bool] = {}
        self.plugged: dict[str, dict[str, Published]] = {}
        self.writes: list[Act] = []
        self.killed: list[str] = []
        self._ids = itertools.count(1)
        self.restart()

    def restart(self) -> None:
        """A new controller, which knows what the API holds and nothing else."""
        self.world = World(CONTRACT, GRACE)
        self._todo: deque[str] = deque()
        for name, found in self.namespaces.items():
            self._look(self.world.put_namespace(name, found))
        for name, ready in self.nodes.items():
            self._look(self.world.put_node(name, ready))
        for node in self.plugged:
            self._publish(node)
        for (what, namespace, name), item in self.objects.items():
            self._look(self.world.put(what, (namespace, name), deepcopy(item)))

    def settle(self, acts: int = 10_000) -> int:
        """Work until all is done, or as many acts were carried out. The number of acts left."""
        for _ in range(MAX_STEPS):
            if not self._todo:
                return acts
            name = self._todo.popleft()
            for act in decide(self.world.observe(name, self.now)).acts:
                if acts == 0:
                    self._todo.appendleft(name)
                    return 0
                acts -= 1
                self.do(act)
        raise AssertionError(f"no end after {MAX_STEPS} looks; last: {self.writes[-6:]}")

    @property
    def work_left(self) -> bool:
        """Something is to be looked at."""
        return bool(self._todo)

    def wait(self, seconds: float) -> None:
        """Time passes, and every object's date comes."""
        self.now += timedelta(seconds=seconds)
        self._look({name for what, _, name in self.objects if what is What.NODE_DEVICE})

    # what people, nodes and kubelets do

    def add_namespace(self, name: str) -> None:
        self.namespaces[name] = Namespace(f"ns-{next(self._ids)}")
        self._look(self.world.put_namespace(name, self.namespaces[name]))

    def remove_namespace(self, name: str) -> None:
        """The namespace goes with all that is in it, pods first."""
        for what, namespace, item in list(self.objects):
            if namespace == name and (what, namespace, item) in self.objects:
                self.release(namespace, item)
                self._store(what, namespace, item, None)
        del self.namespaces[name]
        self._look(self.world.put_namespace(name, None))

    def set_node(self, name: str, ready: bool | None) -> None:
        if ready is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = ready
        self._look(self.world.put_node(name, ready))

    def plug(self, found: Published) -> None:
        self.plugged.setdefault(found.node, {})[found.name] = found
        self._publish(found.node)

    def pull(self, node: str, name: str) -> None:
        self.plugged.get(node, {}).pop(name, None)
        self._publish(node)

    def assign(self, name: str, namespace: str, force: bool = False) -> None:
        item = deepcopy(self.get(What.NODE_DEVICE, name))
        item["spec"] = {"assignedNamespace": namespace, "force": force}
        self._store(What.NODE_DEVICE, "", name, item)

    def use(self, namespace: str, name: str, pods: tuple[str, ...], **state: Any) -> None:
        """Pods hold the shared claim, or a claim of their own if it is not there."""
        status = claim(namespace, name, pods=pods, **state)["status"]
        old = self.objects.get((What.CLAIM, namespace, name))
        fresh = {"metadata": {"namespace": namespace, "name": name, "uid": f"c{next(self._ids)}"}}
        self._store(What.CLAIM, namespace, name, {**deepcopy(old or fresh), "status": status})

    def attach(self, namespace: str, name: str, device: str, holder: str, **to: str) -> None:
        """A USBAttachment whose pod holds the device's claim for a virtual machine, or a pod:
        virtualMachine="NAME", pod="NAME"."""
        spec = {"device": device, **{kind: {"name": what} for kind, what in to.items()}}
        item = {"metadata": {"uid": f"x{next(self._ids)}"}, "spec": spec}
        self._store(What.ATTACHMENT, namespace, name, {**item, "status": {"holderName": holder}})

    def release(self, namespace: str, name: str) -> None:
        """The pods end: the claim is deallocated, and goes if it was marked."""
        item = self.objects.get((What.CLAIM, namespace, name))
        if item is None or "status" not in item:
            return
        freed = {key: value for key, value in deepcopy(item).items() if key != "status"}
        gone = "deletionTimestamp" in freed["metadata"]
        self._store(What.CLAIM, namespace, name, None if gone else freed)

    def delete(self, what: What, name: str, namespace: str = "") -> None:
        """As `kubectl delete`: claims in use are only marked; what an object owns goes with it."""
        item = deepcopy(self.objects[what, namespace, name])
        if what is What.CLAIM and item.get("status"):
            item["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
            self._store(what, namespace, name, item)
            return
        self._store(what, namespace, name, None)
        uid = item["metadata"]["uid"]
        for other, space, key in list(self.objects):
            owners = self.objects[other, space, key]["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == uid for owner in owners):
                self.delete(other, key, space)

    # what the controller asks for

    def do(self, act: Act) -> None:
        self.writes.append(act)
        if isinstance(act, Delete):
            self._carry_out_delete(act)
        elif isinstance(act, Patch):
            item = deepcopy(self.get(act.what, act.name))
            version = act.patch["metadata"]["resourceVersion"]
            assert version == item["metadata"]["resourceVersion"], "patch of an old version"
            item["spec"] |= act.patch["spec"]
            self._store(act.what, "", act.name, item)
        else:
            assert isinstance(act, Apply)  # nothing of a device is made but by applying it
            self._apply(act)

    def _carry_out_delete(self, act: Delete) -> None:
        self._must_be_no_surprise(act)
        if act.what is What.POD:
            assert act.uid == f"uid-{act.name}"
            self.killed.append(act.name)
            for what, namespace, name in list(self.objects):
                if what is What.CLAIM and namespace == act.namespace:
                    self.release(namespace, name)
            return
        item = self.objects.get((act.what, act.namespace or "", act.name))
        if item is not None and item["metadata"]["uid"] == act.uid:
            self.delete(act.what, act.name, act.namespace or "")

    def _must_be_no_surprise(self, act: Delete) -> None:
        """Nothing is taken from under a pod, but where it is withdrawn, and then in order."""
        space = act.namespace or ""
        specs = {
            name: item["spec"]
            for (what, _, name), item in self.objects.items()
            if what is What.NODE_DEVICE
        }
        if act.what is What.POD:
            withdrawn = [s for s in specs.values() if s["assignedNamespace"] != space]
            assert any(s.get("force") for s in withdrawn), f"{act} without force"
        claim = self.objects.get((What.CLAIM, space, act.name), {})
        if act.what in (What.CLAIM, What.DEVICE) and claim.get("status", {}).get("reservedFor"):
            assert act.what is What.CLAIM, f"{act} before its use has ended"
            assert specs.get(act.name, {}).get("assignedNamespace", "") != space, f"{act} in use"

    def _apply(self, act: Apply) -> None:
        name, namespace = act.body["metadata"]["name"], act.namespace or ""
        old = self.objects.get((act.what, namespace, name))
        if act.subresource:
            assert old is not None, f"status of {name}, which does not exist"
            assert act.body["metadata"].get("uid", old["metadata"]["uid"]) == old["metadata"]["uid"]
            item = {**deepcopy(old), "status": deepcopy(act.body["status"])}
        else:
            assert not namespace or namespace in self.namespaces, f"no namespace {namespace}"
            fresh = {"metadata": {"uid": f"u{next(self._ids)}"}}
            item = deepcopy(old or fresh)
            item["metadata"] |= deepcopy(act.body["metadata"])
            item |= {k: deepcopy(v) for k, v in act.body.items() if k != "metadata"}
            if act.what is What.NODE_DEVICE:
                item.setdefault("spec", {"assignedNamespace": ""})
        self._store(act.what, namespace, name, item)

    def get(self, what: What, name: str, namespace: str = "") -> dict[str, Any]:
        return self.objects[what, namespace, name]

    def find(self, what: What) -> list[tuple[str, str]]:
        """(namespace, name) of every object of a kind."""
        return sorted((space, name) for kind, space, name in self.objects if kind is what)

    def condition(self, name: str, kind: str, namespace: str = "") -> tuple[str, str, str]:
        """(status, reason, message) of a NodeUSBDevice, or of a USBDevice with a namespace."""
        what = What.DEVICE if namespace else What.NODE_DEVICE
        conditions = self.get(what, name, namespace)["status"]["conditions"]
        (found,) = [c for c in conditions if c["type"] == kind]
        return found["status"], found["reason"], found["message"]

    def _publish(self, node: str) -> None:
        devices = tuple(self.plugged.get(node, {}).values())
        self._look(self.world.put_slice(f"slice-{node}", part(node, *devices)))

    def _store(self, what: What, namespace: str, name: str, item: dict[str, Any] | None) -> None:
        key: Key = (namespace, name)
        if item is None:
            self.objects.pop((what, namespace, name), None)
        else:
            item["metadata"] |= {"name": name, "resourceVersion": str(next(self._ids))}
            if namespace:
                item["metadata"]["namespace"] = namespace
            self.objects[what, namespace, name] = item
        self._look(self.world.put(what, key, deepcopy(item)))

    def _look(self, names: set[str]) -> None:
        self._todo.extend(name for name in sorted(names) if name not in self._todo)
