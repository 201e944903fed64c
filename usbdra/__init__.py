# SPDX-License-Identifier: Apache-2.0
"""usbdra: USB devices of any node for pods and virtual machines on any other node."""

__version__ = "0.1.0"
