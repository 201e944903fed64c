# SPDX-License-Identifier: Apache-2.0
"""The C boundary: one system call per promise, errno never lost, every fd with one owner.

Imports nothing of ours. Callers import the submodules (`sysfs`, `vhci`, `stub`, `sockfd`, `ktls`,
`bpf`).
"""
