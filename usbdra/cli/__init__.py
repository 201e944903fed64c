# SPDX-License-Identifier: Apache-2.0
"""The command line: reads arguments, calls one function below, shows its result.

Starts fast by loading only the command that runs: `main` and `group` import click and nothing
else of size, and each command imports what it needs when it is called.
"""
