# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of the driver: registration, prepare and unprepare, health, CDI."""
