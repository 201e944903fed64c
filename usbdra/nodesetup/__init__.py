# SPDX-License-Identifier: Apache-2.0
"""Prepares a node: the kernel's modules, and the label that says that they are there."""
