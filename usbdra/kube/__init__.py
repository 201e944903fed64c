# SPDX-License-Identifier: Apache-2.0
"""The API server: one client for plain objects, its errors, list-then-watch."""
