# SPDX-License-Identifier: Apache-2.0
"""Where the time of one Prepare goes, across processes and nodes, as OpenTelemetry traces."""
