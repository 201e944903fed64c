# SPDX-License-Identifier: Apache-2.0
"""Devices into running virtual machines, and out again."""
