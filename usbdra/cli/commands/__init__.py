# SPDX-License-Identifier: Apache-2.0
"""One module a command or family of commands; each is imported when it is called."""
