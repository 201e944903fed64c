# SPDX-License-Identifier: Apache-2.0
"""The USB/IP wire protocol: messages and conversations as state machines, no I/O."""
