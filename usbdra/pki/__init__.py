# SPDX-License-Identifier: Apache-2.0
"""Certificates for hosts without a cluster."""
