# SPDX-License-Identifier: Apache-2.0
"""Lines as strace 6 writes them with `-f -o FILE`."""

from __future__ import annotations

from bench.cluster.syscalls import count

NAMES = {100: "main", 101: "lifeguard"}
TEXT = """\
101   futex(0x7f35, FUTEX_WAIT_BITSET_PRIVATE, 0, {tv_sec=1}, 0xffffffff <unfinished ...>
100   epoll_wait(3,  <unfinished ...>
101   <... futex resumed>)              = -1 ETIMEDOUT (Connection timed out)
101   futex(0x7f36, FUTEX_WAKE_PRIVATE, 1) = 0
102   <... restart_syscall resumed>)    = -1 ETIMEDOUT (Connection timed out)
100   <... epoll_wait resumed>[...], 9, 280433) = 1
100   recvfrom(24, ""..., 262144, 0, NULL, NULL) = 231
100   --- SIGCHLD {si_signo=SIGCHLD} ---
101   futex(0x7f35, FUTEX_WAIT_BITSET_PRIVATE, 0, {tv_sec=1}, 0xffffffff <detached ...>
"""


def test_a_call_counts_once_and_when_it_has_returned() -> None:
    assert count(TEXT, NAMES) == {
        ("lifeguard", "futex"): 2,
        ("main", "epoll_wait"): 1,
        ("main", "recvfrom"): 1,
        ("ended", "restart_syscall"): 1,
    }
