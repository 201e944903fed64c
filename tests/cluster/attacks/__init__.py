# SPDX-License-Identifier: Apache-2.0
"""Attacks on a cluster with everything of docs/security.md, section Hardening, switched on."""
