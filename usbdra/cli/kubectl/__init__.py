# SPDX-License-Identifier: Apache-2.0
"""`kubectl usb`: the cluster's devices for an administrator and a user, at their own machine."""
