# SPDX-License-Identifier: Apache-2.0
"""The guard in front of agent frameworks: one file for each. Nothing is imported that the application does not import."""

from __future__ import annotations

from genai_processor.guard.hooks.installing import active, install, uninstall

__all__ = ["active", "install", "uninstall"]
