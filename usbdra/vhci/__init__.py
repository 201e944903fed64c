# SPDX-License-Identifier: Apache-2.0
"""The importing side of the kernel: vhci_hcd's ports, the choice among them, attach and detach."""
