# SPDX-License-Identifier: Apache-2.0
"""Records that survive a kill: atomic, versioned files."""
