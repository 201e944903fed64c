# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each result is a ratio against its yardstick, measured in the same run."""
