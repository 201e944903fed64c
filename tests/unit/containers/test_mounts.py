# SPDX-License-Identifier: Apache-2.0
"""What mountinfo says of claims that a container was given."""

from __future__ import annotations

from pathlib import PurePosixPath

from usbdra.containers import mounts
from usbdra.containers.mounts import Given, Source
from usbdra.types import ClaimUid

DEVTMPFS = Source("0:6", "/usbdra")
CLAIM = ClaimUid("11111111-2222-3333-4444-555555555555")
CONTAINER = f"""\
700 600 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/x
701 700 0:60 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
702 701 0:6 /usbdra/{CLAIM}/links/usb /dev/usbdra/usb ro,nosuid,noexec - devtmpfs udev rw
703 701 0:6 /usbdra/{CLAIM}/links/usb /dev/usbdra/_claim/c/usb ro,nosuid - devtmpfs udev rw
704 700 0:6 /usbdra/{CLAIM}/metadata/tty.json /var/run/x/metadata.json ro - devtmpfs udev rw
705 700 0:77 /usbdra/{CLAIM}/links/forged /mnt rw - tmpfs tmpfs rw
706 700 0:6 /usbdra/{CLAIM}/links/usb/deeper /mnt/a rw - devtmpfs udev rw
707 700 0:6 /usbdra /mnt/all rw - devtmpfs udev rw
708 700 0:6 /other/{CLAIM}/links/usb /mnt/b rw - devtmpfs udev rw
709 broken
"""


def test_links_and_metadata_of_claims_are_found_by_what_the_kernel_says() -> None:
    assert mounts.given(CONTAINER, DEVTMPFS) == {Given(CLAIM, "usb"), Given(CLAIM, "tty")}


def test_the_source_of_a_directory_is_its_place_in_its_file_system() -> None:
    text = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:6 / /dev rw - devtmpfs udev rw\n"
        "3 2 0:7 / /dev/shm rw - tmpfs shm rw\n"
        "4 1 0:8 /hosts/a\\040b /run rw - tmpfs run rw\n"
    )
    assert mounts.source(text, PurePosixPath("/dev/usbdra")) == DEVTMPFS
    assert mounts.source(text, PurePosixPath("/run/claims")) == Source("0:8", "/hosts/a b/claims")
    assert mounts.source(text, PurePosixPath("/srv")) == Source("8:1", "/srv")
    assert mounts.source("", PurePosixPath("/srv")) is None


def test_a_later_mount_covers_an_earlier_one() -> None:
    text = "1 0 8:1 / /dev rw - ext4 a rw\n2 1 0:6 / /dev rw - devtmpfs udev rw\n"
    assert mounts.source(text, PurePosixPath("/dev/usbdra")) == DEVTMPFS
