# SPDX-License-Identifier: Apache-2.0
"""The cluster's one controller: objects of devices and assignments, kept true by one leader."""
