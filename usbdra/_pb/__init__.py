# SPDX-License-Identifier: Apache-2.0
"""Messages generated from protos/ by protos/gen.py; never edited. Only plugin/ imports them."""
