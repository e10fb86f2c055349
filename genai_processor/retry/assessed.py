# SPDX-License-Identifier: Apache-2.0
"""One tool call with everything that was found of it."""

from __future__ import annotations

from typing import NamedTuple

from genai_processor.retry.execution import Execution as Recorded
from genai_processor.retry.joins import Joined
from genai_processor.retry.nodes import Node
from genai_processor.retry.usage import INPUT_TOKENS, tokens
from genai_processor.retry.verdict import CallFacts, Ended, Execution, Verdict
from genai_processor.spans.arguments import Arguments, ArgumentsState, fingerprint
from genai_processor.spans.read import from_cache


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

    @property
    def uncertain(self) -> bool:
        """Whether it may have committed, and nobody knows."""
        return self.facts.ended in (Ended.FAILED, Ended.UNKNOWN) or self.verdict.quarantined

    @property
    def may_repeat(self) -> bool:
        """Whether it can repeat an effect: it may have run, no cache answered, and the tool is not the framework's."""
        record = self.node.call
        return (
            record is not None
            and self.facts.execution is not Execution.NOT_STARTED
            and self.facts.tool not in record.dialect.framework_tools
            and not from_cache(self.node.span.attributes)
        )

    def execution(self, uncertain: bool | None = None) -> Recorded:
        """What is remembered of it, to recognise a repetition.

        Args:
            uncertain: As `uncertain`, if not given.
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
            uncertain=self.uncertain if uncertain is None else uncertain,
            arguments=_slim(self.arguments),
            turn=self.joined.turn.span.span_id if self.joined is not None and self.joined.turn is not None else None,
            proposed=self.proposed,
        )

    @property
    def digest(self) -> str | None:
        """SHA-256 of the canonical arguments, or None where they are not whole."""
        return fingerprint(self.arguments)


def _slim(arguments: Arguments) -> Arguments | None:
    """What is enough to compare arguments."""
    if arguments.state is not ArgumentsState.COMPLETE:
        return None
    return arguments if arguments.text is None else Arguments(arguments.state, None, arguments.violations, arguments.text)
