# SPDX-License-Identifier: Apache-2.0
"""The importing side: dialling an exporter and handing the link to vhci."""
