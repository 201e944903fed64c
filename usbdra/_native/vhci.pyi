# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from typing import NamedTuple, final

HUB_UNKNOWN: int
HUB_HIGH: int
HUB_SUPER: int
STATE_FREE: int
STATE_ATTACHING: int
STATE_USED: int
STATE_ERROR: int
SOCKFD_NONE: int

class StatusFormatError(ValueError):
    """A status text that is not of a known shape. `header` holds its first line (cut to 120)."""

    header: str
    def __init__(self, message: str, header: str = "") -> None: ...

class Row(NamedTuple):
    """One port: numbers as in the text. hub is HUB_*, state 4 to 7, local_busid b'' when none."""

    port: int
    controller: int
    hub: int
    state: int
    speed: int
    devid: int
    sockfd: int
    local_busid: bytes

@final
class StatusTable:
    """Parsed rows of all controllers in a C array; Row tuples are made only when asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Row: ...
    def __iter__(self) -> Iterator[Row]: ...
    def count(self, hub: int, state: int, /) -> int:
        """How many rows have this hub and state; -1 for either stands for any."""
    def first(self, hub: int, state: int, start: int = 0, /) -> int:
        """Index of the first such row at or after index `start`, or -1."""
    def not_free(self) -> list[Row]:
        """Rows in any state but free, in port order."""

def parse(texts: list[bytes], /) -> StatusTable:
    """Parse the texts of `status`, `status.1`, ... (index = controller). Shapes S1 to S6.

    A text with a known header and no rows is a controller that is not ready: no rows, no error.
    Raises StatusFormatError for an unknown header, a malformed row, a port number twice, or
    more than 4096 rows.
    """

def read_status(directory: bytes, count: int, /) -> StatusTable:
    """Read and parse `status` .. `status.<count-1>` of a vhci_hcd.0 directory without leaving C."""

def attach(directory: bytes, port: int, sockfd: int, devid: int, speed: int, /) -> None:
    """One write of `port sockfd devid speed` to `attach`. Borrows sockfd; the kernel takes its
    own reference. Raises OSError (EBUSY or EINVAL: port taken meanwhile)."""

def detach(directory: bytes, port: int, /) -> None:
    """One write of the port to `detach`. Done only when its row is back at STATE_FREE."""
