# SPDX-License-Identifier: Apache-2.0
"""The second line of the namespace fence: every case, and what its text gives away."""

from __future__ import annotations

import pytest

from usbdra.errors import Refused
from usbdra.exporter import fence
from usbdra.types import DeviceName

DEVICE = DeviceName("usb-1")


@pytest.mark.parametrize(
    ("assigned", "required", "says"),
    [
        ("lab", True, None),
        ("lab", False, None),
        ("", False, None),
        ("", True, "is not assigned to a namespace, and this cluster requires it"),
        ("secret-project", True, "is assigned to another namespace than lab"),
        ("secret-project", False, "is assigned to another namespace than lab"),
        (None, True, "not known yet"),
        (None, False, "not known yet"),
    ],
)
def test_who_may_have_it(assigned: str | None, required: bool, says: str | None) -> None:
    if says is None:
        fence.require(DEVICE, "lab", assigned, required=required)
        return
    with pytest.raises(Refused, match=says) as caught:
        fence.require(DEVICE, "lab", assigned, required=required)
    assert "secret-project" not in str(caught.value)
