# SPDX-License-Identifier: Apache-2.0
"""The command line; no logic of its own."""
