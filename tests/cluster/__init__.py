# SPDX-License-Identifier: Apache-2.0
"""The cluster bed: a real control plane and two real nodes, and the tests that need them."""
