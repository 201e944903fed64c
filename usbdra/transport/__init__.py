# SPDX-License-Identifier: Apache-2.0
"""Sockets between nodes: options, TLS 1.3 handshake, kernel TLS."""
