# SPDX-License-Identifier: Apache-2.0
"""What the inferences of a trace cost in tokens, and what of it a retry storm made them cost again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from genai_processor.retry.nodes import Node
from genai_processor.retry.trace import Trace


class Usage(NamedTuple):
    """Tokens of one trace, over its leaf inferences.

    Attributes:
        trace_id: The trace.
        input_tokens: All input tokens.
        output_tokens: All output tokens.
        rebilled_tokens: Input tokens of the inferences that proposed a certain duplicate again.
    """

    trace_id: str
    input_tokens: int
    output_tokens: int
    rebilled_tokens: int


INPUT_TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "ai.usage.promptTokens",
    "ai.usage.inputTokens",
)
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "ai.usage.completionTokens",
    "ai.usage.outputTokens",
)


def usage_of(trace: Trace, again: Iterable[Node]) -> Usage:
    """The tokens of a trace.

    Args:
        trace: The trace.
        again: The inferences that proposed a certain duplicate.
    """
    turns = trace.turns()
    leaves = turns
    if len(turns) > 1:
        above = _above(turns)
        leaves = [turn for turn in turns if id(turn) not in above]
    return Usage(
        trace.trace_id,
        sum([tokens(turn, INPUT_TOKENS) for turn in leaves]),
        sum([tokens(turn, OUTPUT_TOKENS) for turn in leaves]),
        sum([tokens(turn, INPUT_TOKENS) for turn in again]),
    )


def _above(nodes: Iterable[Node]) -> set[int]:
    """Whatever stands above some of the nodes."""
    above: set[int] = set()
    for node in nodes:
        parent = node.parent
        while parent is not None and id(parent) not in above:
            above.add(id(parent))
            parent = parent.parent
    return above


def tokens(node: Node, keys: tuple[str, ...]) -> int:
    """The tokens that an inference span reports under the first of the keys, or 0."""
    attributes = node.span.attributes
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0
