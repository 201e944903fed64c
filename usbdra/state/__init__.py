# SPDX-License-Identifier: Apache-2.0
"""Records that survive the process: their shapes, and the files they live in."""
