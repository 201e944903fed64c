# SPDX-License-Identifier: Apache-2.0
"""Controllers and devices of the fake sysfs; `tests.fakes.sysfs` is the way in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.descriptors import STORAGE, Interface, configuration, device_descriptor
from tests.fakes.sysfs_nodes import BLOCK_MAJORS, child_major, link

if TYPE_CHECKING:
    from tests.fakes.sysfs import SysTree

LINK_PLACES = (
    "bus/usb/devices/*",
    "bus/usb/drivers/*/*",
    "dev/char/*",
    "dev/block/*",
    "class/*/*",
    "block/*",
)


class Controller:
    """A host controller; its directory holds the root hubs."""

    def __init__(self, tree: SysTree, path: Path) -> None:
        self.tree = tree
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def root_hub(self, bus: int = 1, speed: str = "480") -> FakeDevice:
        return FakeDevice(
            self.tree,
            self.path,
            f"usb{bus}",
            bus=bus,
            devnum=1,
            vendor="1d6b",
            product="0003" if float(speed) >= 5000 else "0002",
            serial=self.path.name.encode(),
            device_class=(9, 0, 1),
            speed=speed,
            interfaces=(Interface(9, driver="hub"),),
        )


class FakeDevice:
    """One USB device or hub: its directory, links, node and children."""

    def __init__(
        self,
        tree: SysTree,
        parent: Path,
        busid: str,
        *,
        bus: int,
        devnum: int,
        vendor: str,
        product: str,
        bcd: str = "0100",
        serial: bytes | None = None,
        manufacturer: bytes | None = b"ACME",
        product_name: bytes | None = b"Thing",
        device_class: tuple[int, int, int] = (0, 0, 0),
        speed: str | None = "480",
        interfaces: tuple[Interface, ...] = (STORAGE,),
        authorized: bool = True,
        configuration_value: int | None = 1,
        driver: str | None = "usb",
        node: bool = True,
    ) -> None:
        self.tree = tree
        self.busid = busid
        self.bus = bus
        self.devnum = devnum
        self.path = parent / busid
        self.path.mkdir(parents=True)
        tree.devnums[bus] = max(devnum, tree.devnums.get(bus, 0))
        minor = (bus - 1) * 128 + devnum - 1
        configured = configuration_value is not None
        texts: dict[str, str | None] = {
            "idVendor": vendor,
            "idProduct": product,
            "bcdDevice": bcd,
            "bDeviceClass": f"{device_class[0]:02x}",
            "bDeviceSubClass": f"{device_class[1]:02x}",
            "bDeviceProtocol": f"{device_class[2]:02x}",
            "busnum": f"{bus}",
            "devnum": f"{devnum}",
            "devpath": busid.partition("-")[2] or "0",
            "speed": speed,
            "dev": f"189:{minor}",
            "authorized": f"{authorized:d}",
            "bNumConfigurations": "1",
            "bConfigurationValue": f"{configuration_value}" if configured else "",
            "bNumInterfaces": f"{len({i.number for i in interfaces}):2d}" if configured else "",
            "uevent": f"MAJOR=189\nMINOR={minor}\nDEVNAME=bus/usb/{bus:03d}/{devnum:03d}\n"
            f"DEVTYPE=usb_device\n{f'DRIVER={driver}' if driver else ''}",
        }
        for name, text in texts.items():
            if text is not None:
                self.write(name, f"{text}\n".encode())
        for name, raw in (
            ("serial", serial),
            ("manufacturer", manufacturer),
            ("product", product_name),
        ):
            if raw is not None:
                self.write(name, raw + b"\n")
        self.write(
            "descriptors",
            device_descriptor(
                int(vendor, 16),
                int(product, 16),
                int(bcd, 16),
                device_class,
                serial_index=0 if serial is None else 3,
            )
            + configuration(interfaces),
        )
        link(self.path / "subsystem", tree.sys / "bus/usb")
        link(tree.sys / "bus/usb/devices" / busid, self.path)
        link(tree.sys / "dev/char" / f"189:{minor}", self.path)
        self.bind(driver)
        self.node = tree.root / f"dev/bus/usb/{bus:03d}/{devnum:03d}"
        if node:
            self.make_node()
        if configuration_value is not None:
            for interface in interfaces:
                if interface.alternate == 0:
                    self.add_interface(interface, configuration_value)

    @property
    def devpath(self) -> str:
        """As a uevent spells it: `/devices/...`."""
        return "/" + str(self.path.relative_to(self.tree.sys))

    @property
    def syspath(self) -> str:
        """As `UsbDevice.syspath` spells it: `/sys/devices/...`."""
        return f"/sys{self.devpath}"

    def hub(self, port: int, *, speed: str = "480") -> FakeDevice:
        return self.plug(
            port,
            vendor="05e3",
            product="0610",
            device_class=(9, 0, 2),
            speed=speed,
            interfaces=(Interface(9, driver="hub"),),
        )

    def plug(
        self,
        port: int,
        *,
        vendor: str = "0781",
        product: str = "5581",
        devnum: int | None = None,
        bcd: str = "0100",
        serial: bytes | None = None,
        manufacturer: bytes | None = b"ACME",
        product_name: bytes | None = b"Thing",
        device_class: tuple[int, int, int] = (0, 0, 0),
        speed: str | None = "480",
        interfaces: tuple[Interface, ...] = (STORAGE,),
        authorized: bool = True,
        configuration_value: int | None = 1,
        driver: str | None = "usb",
        node: bool = True,
    ) -> FakeDevice:
        """A device at this hub's port; the device number counts up per bus unless given.

        An unauthorized or unconfigured device is `configuration_value=None`: no interfaces and
        the attribute empty, as the kernel shows it. `speed=None` leaves the file out.
        """
        root = self.busid.startswith("usb")
        return FakeDevice(
            self.tree,
            self.path,
            f"{self.bus}-{port}" if root else f"{self.busid}.{port}",
            bus=self.bus,
            devnum=self.tree.next_devnum(self.bus) if devnum is None else devnum,
            vendor=vendor,
            product=product,
            bcd=bcd,
            serial=serial,
            manufacturer=manufacturer,
            product_name=product_name,
            device_class=device_class,
            speed=speed,
            interfaces=interfaces,
            authorized=authorized,
            configuration_value=configuration_value,
            driver=driver,
            node=node,
        )

    def unplug(self) -> None:
        """Everything of it and below it goes, links and nodes included."""
        for dev in (self.path, *self.path.rglob("*")):
            busnum, devnum = dev / "busnum", dev / "devnum"
            if dev.is_dir() and busnum.is_file() and devnum.is_file():
                bus, num = int(busnum.read_text()), int(devnum.read_text())
                (self.tree.root / f"dev/bus/usb/{bus:03d}/{num:03d}").unlink(missing_ok=True)
        self.remove_tree(self.path)

    def remove_tree(self, top: Path) -> None:
        """Remove a directory and every link from elsewhere in sysfs into it."""
        with self.tree.lock:
            for place in LINK_PLACES:
                for path in self.tree.sys.glob(place):
                    if path.is_symlink() and _is_below(Path(os.path.realpath(path)), top):
                        path.unlink()
            shutil.rmtree(top)

    def write(self, name: str, data: bytes) -> None:
        """Set an attribute to exactly these bytes."""
        path = self.path / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def break_(self, name: str) -> None:
        """Reading the attribute gives EIO from now on (page 0 of one's own memory does)."""
        (self.path / name).unlink(missing_ok=True)
        (self.path / name).symlink_to("/proc/self/mem")

    def make_node(self) -> None:
        self.node.parent.mkdir(parents=True, exist_ok=True)
        self.node.write_bytes(b"")

    def bind(self, driver: str | None) -> None:
        """Bind the device itself (`usb`, `usbip-host`) or unbind it (None)."""
        self._bind(self.path, driver)

    def add_interface(self, interface: Interface, configuration_value: int = 1) -> Path:
        path = self.path / self.interface_name(interface.number, configuration_value)
        path.mkdir()
        texts = {
            "bInterfaceNumber": f"{interface.number:02x}",
            "bAlternateSetting": f"{interface.alternate:2d}",
            "bInterfaceClass": f"{interface.class_code:02x}",
            "bInterfaceSubClass": f"{interface.subclass:02x}",
            "bInterfaceProtocol": f"{interface.protocol:02x}",
            "bNumEndpoints": f"{len(interface.endpoints):02x}",
        }
        for name, text in texts.items():
            (path / name).write_text(f"{text}\n")
        link(path / "subsystem", self.tree.sys / "bus/usb")
        link(self.tree.sys / "bus/usb/devices" / path.name, path)
        self._bind(path, interface.driver)
        return path

    def remove_interfaces(self) -> None:
        """As when the device loses its configuration; whatever drivers made below goes too."""
        for path in [p for p in self.path.iterdir() if ":" in p.name]:
            self.remove_tree(path)

    def bind_interface(self, number: int, driver: str | None) -> None:
        self._bind(self.interface(number), driver)

    def interface(self, number: int = 0) -> Path:
        return self.path / self.interface_name(number)

    def interface_name(self, number: int, configuration_value: int = 1) -> str:
        stem = f"{self.bus}-0" if self.busid.startswith("usb") else self.busid
        return f"{stem}:{configuration_value}.{number}"

    def child(
        self,
        subsystem: str,
        name: str,
        parts: tuple[str, ...] = (),
        *,
        interface: int = 0,
        minor: int = 0,
    ) -> Path:
        """A device that a driver made: `block` with partitions (minors count up from `minor`),
        `net`, `tty`, `hidraw`, `sound`, `video4linux`, or `input` with its event handlers.

        A SCSI or serial core puts directories between; so does this, where the kernel does.
        """
        between = {
            "block": "host6/target6:0:0/6:0:0:0/block",
            "tty": f"{name}/tty" if name.startswith("ttyUSB") else "tty",
            "hidraw": "0003:046D:C31C.0001/hidraw",
            "input": "0003:046D:C31C.0001/input",
            "sound": "sound/card1",
        }.get(subsystem, subsystem)
        path = self.interface(interface) / between / name
        path.mkdir(parents=True)
        if subsystem == "net":
            (path / "ifindex").write_text("7\n")
            self._class_link("net", path)
            return path
        if subsystem == "input" and name.startswith("input"):
            self._class_link("input", path)
            for number, part in enumerate(parts):
                (path / part).mkdir()
                self._dev(path / part, "input", f"13:{64 + minor + number}")
            return path
        major = child_major(subsystem)
        self._dev(path, subsystem, f"{major}:{minor}")
        for number, part in enumerate(parts, start=1):
            (path / part / "holders").mkdir(parents=True)
            (path / part / "partition").write_text(f"{number}\n")
            self._dev(path / part, subsystem, f"{major}:{minor + number}", disk=False)
        return path

    def _dev(self, path: Path, subsystem: str, dev: str, *, disk: bool = True) -> None:
        (path / "dev").write_text(f"{dev}\n")
        (path / "uevent").write_text(
            f"MAJOR={dev.partition(':')[0]}\nMINOR={dev.partition(':')[2]}\nDEVNAME={path.name}\n"
        )
        link(path / "subsystem", self.tree.sys / "class" / subsystem)
        if subsystem in BLOCK_MAJORS:
            (path / "holders").mkdir(exist_ok=True)
            self.tree.block_links(path, dev, disk=disk)
        else:
            self._class_link(subsystem, path)
            link(self.tree.sys / "dev/char" / dev, path)

    def _class_link(self, subsystem: str, path: Path) -> None:
        link(self.tree.sys / "class" / subsystem / path.name, path)

    def _bind(self, path: Path, driver: str | None) -> None:
        old = path / "driver"
        if old.is_symlink():
            (Path(os.path.realpath(old)) / path.name).unlink(missing_ok=True)
            old.unlink()
        if driver is not None:
            directory = self.tree.driver(driver)
            link(old, directory)
            link(directory / path.name, path)


def _is_below(path: Path, top: Path) -> bool:
    return path == top or top in path.parents
