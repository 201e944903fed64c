# SPDX-License-Identifier: Apache-2.0
"""`python -m usbdra`."""

from usbdra.cli.main import main

main()
