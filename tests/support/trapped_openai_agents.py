# SPDX-License-Identifier: Apache-2.0
"""A model of the OpenAI Agents SDK that must not be reached."""

from __future__ import annotations

from typing import Any

from agents.models.interface import Model

from support.traps import Trap


class TrappedModel(Model):
    def __init__(self, trap: Trap) -> None:
        self.trap = trap

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        self.trap.spring("the model")

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        self.trap.spring("the model's stream")
