# SPDX-License-Identifier: Apache-2.0
"""The Go programs of the cluster bed, built once and kept outside the checkout.

Owns which programs and which versions: Kubernetes and etcd in one multi-call binary (`src/`),
containerd with its shim and `ctr`, and helm. `gobuild` says how Go is called.
"""
