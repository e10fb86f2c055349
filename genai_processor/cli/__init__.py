# SPDX-License-Identifier: Apache-2.0
"""The command line: needs the `cli` extra (typer, rich, zstandard)."""
