# SPDX-License-Identifier: Apache-2.0
"""Everything that checks usbdra; nothing of it is in the wheel."""
