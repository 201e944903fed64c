# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices built from a snapshot and the node's hubs."""
