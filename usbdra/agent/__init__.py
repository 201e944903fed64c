# SPDX-License-Identifier: Apache-2.0
"""The node daemon: the parts put together, and the thin pieces that join two of them."""
