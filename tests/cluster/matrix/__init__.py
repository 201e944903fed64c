# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: every fault, in every phase of a claim, on every side (`make faults`)."""
