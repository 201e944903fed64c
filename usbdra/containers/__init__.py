# SPDX-License-Identifier: Apache-2.0
"""Running containers of this node: which are there, and what devices they may use."""
