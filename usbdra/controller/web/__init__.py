# SPDX-License-Identifier: Apache-2.0
"""The controller's web page: devices, ports, links, and assigning by a click."""
