# SPDX-License-Identifier: Apache-2.0
"""Tests against a real control plane without nodes: no QEMU, one start for the whole run."""
