# SPDX-License-Identifier: Apache-2.0
"""The exporting side: listener, authorisation, binding devices to usbip_host."""
