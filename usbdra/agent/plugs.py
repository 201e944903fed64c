# SPDX-License-Identifier: Apache-2.0
"""Devices of this node's claims in the virtual machines and running pods of this node.

Owns what is plugged in where: by the attachments that the API has for this node, by the records
of claims, and by its own records, it brings each machine to what it should have. Level driven:
any news of a claim leads to one look at that claim alone. A device leaves its machine before it
leaves the node (`release`), and a machine that is gone has given it back. Must not attach devices
to the node or decide about attachments.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from usbdra.agent import podplugs
from usbdra.agent.options import AgentOptions
from usbdra.agent.plugreports import PlugReports
from usbdra.agent.podplugs import Containers, PodPlugs
from usbdra.errors import LinkError, PlugFailed, StateError, UsbdraError
from usbdra.hotplug.machines import Key, Machines
from usbdra.hotplug.qemu import PREFIX, Address
from usbdra.hotplug.qmp import MachineGone, Silent
from usbdra.kube.client import KubeClient
from usbdra.kube.custom import Contract
from usbdra.kube.errors import ApiError
from usbdra.kube.types import Object
from usbdra.kube.verbs import Lister
from usbdra.kube.watch import Change, Reflector
from usbdra.plugin.threads import in_thread
from usbdra.slices.limits import digest
from usbdra.state.claims import ClaimRecord, ClaimRef, DeviceRecord, Held, Phase
from usbdra.state.plugs import PlugRecord, PlugSchema
from usbdra.state.store import RecordStore
from usbdra.types import ClaimUid, NodeName

log = logging.getLogger(__name__)

RELEASE_TIME = 8.0
"""Seconds that a machine may keep a claim from being given back; the kubelet gives 45 for all."""

Intact = Callable[[ClaimRef, DeviceRecord], Awaitable[bool]]
"""Whether a claim's device is there, the same, under the same numbers (contracts.Attacher)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A device that belongs into a machine now. tag: see hotplug/qemu.py."""

    record: PlugRecord
    bus: str
    claim: ClaimRef
    device: DeviceRecord
    held: Held

    @property
    def tag(self) -> str:
        """What tells this life of the device from every other in the same machine."""
        return f"{self.record.claim} {self.held.busnum} {self.held.devnum}"


@dataclass(slots=True)
class _Keeper:
    """What looks after one claim."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None


class Plugs:
    """See module. Call `load`, then `run`; `release` and `claims_changed` at any time."""

    def __init__(
        self,
        api: Lister,
        names: Contract,
        node: NodeName,
        *,
        kubelet_dir: Path,
        store: RecordStore[PlugRecord],
        claims: Callable[[ClaimUid], ClaimRecord | None],
        intact: Intact,
        reports: PlugReports,
        pods: PodPlugs | None = None,
        root: Path = Path("/"),
        pauses: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        self._attachments = Reflector(
            api, names.attachment, fields=f"status.nodeName={node}", on_error=_complain
        )
        self._machines = Machines(kubelet_dir, self._ended)
        self._store = store
        self._claims = claims
        self._intact = intact
        self._reports = reports
        self._pods = pods or PodPlugs(None)
        self._root = root
        self._pauses = pauses
        self._by_claim: dict[ClaimUid, Object] = {}
        self._plugs: dict[ClaimUid, PlugRecord] = {}
        self._keepers: dict[ClaimUid, _Keeper] = {}
        self._group: asyncio.TaskGroup | None = None

    @classmethod
    def of_node(
        cls,
        api: KubeClient,
        options: AgentOptions,
        claims: Callable[[ClaimUid], ClaimRecord | None],
        intact: Intact,
        containers: Containers | None,
    ) -> Plugs | None:
        """The node's; None where devices are not plugged into what runs."""
        if not options.machines:
            return None
        names = Contract(options.group)
        return cls(
            api,
            names,
            options.node,
            kubelet_dir=options.kubelet_dir,
            store=RecordStore(options.state_dir / "plugs", PlugSchema()),
            claims=claims,
            intact=intact,
            reports=PlugReports(api, names.attachment),
            pods=PodPlugs(containers),
            root=options.root,
        )

    async def load(self) -> None:
        """Read what an earlier agent of this node left."""
        found, bad = await in_thread(self._store.load_all)
        self._plugs = {ClaimUid(name): record for name, record in found.items()}
        for item in bad:
            log.error("record %s %s; it is kept as %s", item.name, item.reason, item.path)

    async def run(self) -> None:
        """Follow attachments and claims until cancelled; what is plugged in stays then.

        Nothing is taken out before the API has said once what belongs on this node.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reports.run())
                async for event in self._attachments.run():
                    if isinstance(event, Change):
                        self._note(event)
                    else:
                        self._group = group
                        self._look_at({*self._by_claim, *self._plugs})
        finally:
            self._group = None
            await self._machines.aclose()

    def plugged(self, claim: ClaimUid) -> PlugRecord | None:
        """What the claim's device may be plugged into."""
        return self._plugs.get(claim)

    def claims_changed(self) -> None:
        """Records of claims are not what they were."""
        self._look_at({*self._by_claim, *self._plugs})

    async def release(self, claim: ClaimUid) -> None:
        """Take the claim's device out of its machine: it is about to leave the node.

        Bounded: a machine that does not let go loses the device as if it were pulled, and is
        cleaned up later.
        """
        if claim not in self._plugs:
            return
        keeper = self._keepers.setdefault(claim, _Keeper())
        try:
            async with asyncio.timeout(RELEASE_TIME), keeper.turn:
                record = self._plugs.get(claim)
                if record is not None:
                    await self._take_out(record)
        except (UsbdraError, TimeoutError) as error:
            text = str(error) or f"no end within {RELEASE_TIME:g} s"
            log.warning("a device is pulled out of a virtual machine: %s", text)
        finally:
            self._look_at({claim})

    def _note(self, change: Change) -> None:
        """An attachment came, changed or went."""
        concerned = set()
        for item in (change.old, change.new):
            uid = ClaimUid(((item or {}).get("status") or {}).get("claimUID", ""))
            if item is None or not uid:
                continue
            concerned.add(uid)
            if item is change.new:
                self._by_claim[uid] = item
            elif self._by_claim.get(uid) is change.old or change.new is None:
                self._by_claim.pop(uid, None)
        if change.new is None and change.old is not None:
            self._reports.forget(change.old["metadata"]["uid"])
        self._look_at(concerned)

    def _ended(self, key: Key) -> None:
        """A QEMU went, or closed its socket: perhaps it starts again, without our devices."""
        self._look_at({uid for uid, plug in self._plugs.items() if _key(plug) == key})

    def _look_at(self, claims: set[ClaimUid]) -> None:
        if self._group is None:
            return
        for uid in claims:
            keeper = self._keepers.setdefault(uid, _Keeper())
            keeper.wake.set()
            if keeper.task is None:
                keeper.task = self._group.create_task(self._keep(uid, keeper))

    async def _keep(self, uid: ClaimUid, keeper: _Keeper) -> None:
        """One claim's device, until it neither is nor should be in a machine."""
        low, high = self._pauses
        pause = low
        while True:
            keeper.wake.clear()
            failed = True
            try:
                async with keeper.turn:
                    await self._settle(uid)
                failed = False
            except UsbdraError as error:
                log.warning("device of claim %s: %s", uid, error, extra={"reason": error.reason})
                self._tell(uid, error)
            except Exception:  # our own mistake about one device must not cost the others
                log.exception("device of claim %s", uid)
            pause = min(pause * 2, high) if failed else low
            if not failed and uid not in self._plugs and not keeper.wake.is_set():
                keeper.task = None
                del self._keepers[uid]
                return
            try:
                async with asyncio.timeout(pause if failed else None):
                    await keeper.wake.wait()
            except TimeoutError:
                pass

    async def _settle(self, uid: ClaimUid) -> None:
        """Bring one device to where it belongs: out first, then in."""
        wanted, have = self._wanted(uid), self._plugs.get(uid)
        if have is not None and (wanted is None or wanted.record != have):
            await self._take_out(have)
            have = None
        if wanted is not None:
            if have is None:
                await in_thread(self._store.save, uid, wanted.record)
                self._plugs[uid] = wanted.record
            await self._put_in(wanted)

    def _wanted(self, uid: ClaimUid) -> Wanted | None:
        """What should be in a machine of this node now, by the API and by what the claim holds."""
        item, claim = self._by_claim.get(uid), self._claims(uid)
        if item is None or claim is None or claim.phase is not Phase.PREPARED:
            return None
        target: Mapping[str, Any] | None = item["status"].get("target")
        device = next((d for d in claim.devices if d.held is not None and d.exclusive), None)
        if not target or device is None or device.held is None:
            return None
        meta = item["metadata"]
        if target.get("adapter") == "pod" and not target.get("containerID"):
            return None  # between two lives of the container
        record = PlugRecord(
            claim=uid,
            namespace=str(meta["namespace"]),
            name=str(meta["name"]),
            attachment=str(meta["uid"]),
            pod=str(target["uid"]),
            socket=str(target.get("socket", "")),
            container=str(target.get("containerID", "")),
            nodes=podplugs.nodes(device) if target.get("adapter") == "pod" else (),
        )
        return Wanted(record, str(target.get("bus", "")), claim.ref, device, device.held)

    async def _put_in(self, wanted: Wanted) -> None:
        record, name = wanted.record, _name(wanted.record)
        if record.container:
            if not await self._intact(wanted.claim, wanted.device):
                raise LinkError(f"device {wanted.device.name} went away")
            await self._pods.put_in(record, wanted.device)
            self._reports.attached(record, None)
            return
        async with self._machines.talk(_key(record)) as qemu:
            found = await qemu.plugged(name)
            if found is not None and found.tag == wanted.tag:
                address = found.address
            else:
                fd = await self._open(wanted)
                try:
                    address = await qemu.plug(name, wanted.tag, fd, wanted.bus)
                except Silent as error:  # by the look just now it is not in
                    raise PlugFailed(str(error)) from error
                finally:
                    os.close(fd)
                log.info("plugged in", extra=_facts(wanted, address))
        self._reports.attached(record, address)

    async def _take_out(self, record: PlugRecord) -> None:
        """Out of what it is in and off the records. Raises UsbdraError; the record stays then."""
        if record.container:
            await self._pods.take_out(record)
            await self._forget(record, "the device was taken out of the container")
            return
        try:
            async with self._machines.talk(_key(record)) as qemu:
                await qemu.unplug(_name(record))
        except MachineGone as error:
            log.info("claim %s: %s", record.claim, error)
        await self._forget(record, "the device was taken out of the machine")
        if not any(_key(plug) == _key(record) for plug in self._plugs.values()):
            await self._machines.leave(_key(record))

    async def _forget(self, record: PlugRecord, text: str) -> None:
        await in_thread(self._store.delete, record.claim)
        self._plugs.pop(record.claim, None)
        self._reports.detached(record, "Detached", text)

    async def _open(self, wanted: Wanted) -> int:
        """The device's node, opened, and proven to be this device's. The caller closes it."""
        node = wanted.held.node
        gone = f"device {wanted.device.name} went away before it was plugged in"
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._root / node.path.removeprefix("/"), flags)
        except OSError as error:
            raise LinkError(f"{gone}: {error.strerror}") from error
        facts = os.fstat(fd)
        numbers = (os.major(facts.st_rdev), os.minor(facts.st_rdev))
        same = stat.S_ISCHR(facts.st_mode) and numbers == (node.major, node.minor)
        if not same or not await self._intact(wanted.claim, wanted.device):
            os.close(fd)
            raise LinkError(gone)
        return fd

    def _tell(self, uid: ClaimUid, error: UsbdraError) -> None:
        """Say why a device is not in its machine, unless it may well be."""
        record = self._plugs.get(uid)
        if record is None or isinstance(error, StateError):
            return
        if not (isinstance(error, Silent) and self._stands(record)):
            self._reports.detached(record, error.reason, str(error))

    def _stands(self, record: PlugRecord) -> bool:
        """The API has it as attached, by an earlier agent's word."""
        plug = ((self._by_claim.get(record.claim) or {}).get("status") or {}).get("plug") or {}
        same = (plug.get("podUID"), plug.get("claimUID")) == (record.pod, record.claim)
        return same and bool(plug.get("attached"))


def _name(record: PlugRecord) -> str:
    """The device's id in the machine."""
    return f"{PREFIX}{digest(record.attachment)}"


def _key(record: PlugRecord) -> Key:
    return (record.pod, record.socket)


def _facts(wanted: Wanted, address: Address) -> dict[str, object]:
    return {
        "claim": str(wanted.claim),
        "device": wanted.device.name,
        "pod": wanted.record.pod,
        "port": address.port,
    }


def _complain(error: ApiError) -> None:
    log.warning("attachments are not known: %s", error)
