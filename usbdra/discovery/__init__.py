# SPDX-License-Identifier: Apache-2.0
"""USB devices of this node: enumeration, events, names, policy, one snapshot."""
