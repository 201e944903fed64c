# SPDX-License-Identifier: Apache-2.0
"""Numbers for Prometheus: what there is, how it is kept, how it is asked for."""
