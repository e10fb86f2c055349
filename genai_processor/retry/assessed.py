# SPDX-License-Identifier: Apache-2.0
"""One tool call with everything that was found of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from genai_processor.retry.history import Execution as Recorded
from genai_processor.retry.joins import Joined
from genai_processor.retry.nodes import Node
from genai_processor.retry.verdict import CallFacts, Execution, Verdict
from genai_processor.spans.arguments import Arguments, fingerprint


class AssessedCall(NamedTuple):
    """One tool call with its verdict.

    Attributes:
        node: Its outermost span.
        facts: What the verdict rests on.
        verdict: The verdict.
        scope: Where its ids and actions are unique: conversation, session, or trace id.
        arguments: Its arguments, wherever they were found.
        arguments_source: `span`, `proposal` or `none`.
        joined: The proposal behind it, if any.
        proposed: How many calls like it that turn proposed.
    """

    node: Node
    facts: CallFacts
    verdict: Verdict
    scope: str
    arguments: Arguments
    arguments_source: str
    joined: Joined | None
    proposed: int

    @property
    def turn_tokens(self) -> int:
        """The input tokens of the turn that proposed it, or 0."""
        return tokens(self.joined.turn, INPUT_TOKENS) if self.joined is not None and self.joined.turn is not None else 0

    def execution(self, uncertain: bool) -> Recorded:
        """What is remembered of it, to recognise a repetition.

        Args:
            uncertain: It may have committed, and nobody knows.
        """
        span, facts = self.node.span, self.facts
        return Recorded(
            span_id=span.span_id,
            trace_id=span.trace_id,
            tool=facts.tool,
            call_id=None if facts.call_id_unstable else facts.call_id,
            start_ns=span.start_ns or 0,
            end_ns=span.end_ns or span.start_ns or 0,
            ended=facts.ended,
            uncertain=uncertain,
            arguments=self.arguments,
            turn=self.joined.turn.span.span_id if self.joined is not None and self.joined.turn is not None else None,
            proposed=self.proposed,
        )

    @property
    def digest(self) -> str | None:
        """SHA-256 of the canonical arguments, or None where they are not whole."""
        return fingerprint(self.arguments)

    @property
    def executed(self) -> bool:
        """Whether it may have run at all."""
        return self.facts.execution is not Execution.NOT_STARTED


INPUT_TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "ai.usage.promptTokens",
)
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "ai.usage.completionTokens",
)


def tokens(turn: Node, keys: tuple[str, ...]) -> int:
    """The tokens that an inference span reports under the first of the keys, or 0."""
    for key in keys:
        value: Any = turn.span.attributes.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0
