# SPDX-License-Identifier: Apache-2.0
"""Traps in place of models, tools and the network."""

from support.traps import trap

__all__ = ["trap"]
