# SPDX-License-Identifier: Apache-2.0
"""A model of LangChain that must not be reached."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel


class TrappedModel(BaseChatModel):
    trap: Any

    @property
    def _llm_type(self) -> str:
        return "trapped"

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.trap.spring("the model")

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


class TrappedStream(TrappedModel):
    """One that streams by itself."""

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        self.trap.spring("the model's stream")
