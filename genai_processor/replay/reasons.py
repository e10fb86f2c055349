# SPDX-License-Identifier: Apache-2.0
"""What to do about each reason, so that the next recording can be replayed further."""

from __future__ import annotations

from functools import lru_cache

from genai_processor.replay.decisions import Reason
from genai_processor.replay.records import Operation

_STAMPS = "or record with GENAI_PROCESSOR_RECORD_FOR_REPLAY=true"
_LIMITS = "raise OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT and OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, or leave them unset"
_CONTENT = "switch content capture on in the instrumentation"
_HISTORY = (
    "send the whole history with each request, or record it on the span; what goes on from a response that the same "
    "process got is known if it is recorded with GENAI_PROCESSOR_RECORD_FOR_REPLAY=true"
)
_AS_RECORDED = "keep whatever stands behind the processor from changing the messages of spans: they are not as stamped"
_ORDER = "record gen_ai.input.messages on the inference's own span"

REMEDIES: dict[Reason, str] = {
    Reason.CYCLE: "export each span once and whole, with links that point back only",
    Reason.CONFLICTING_COPIES: "export each span once, when it has ended",
    Reason.UNREADABLE: "record messages as a JSON array of messages with a role",
    Reason.INPUT_CUT: f"{_LIMITS}, {_STAMPS}",
    Reason.INPUT_REDACTED: "let the redaction spare the messages of runs that are to be replayed",
    Reason.INPUT_WITHHELD: f"{_CONTENT}; without it, GENAI_PROCESSOR_RECORD_FOR_REPLAY=true records order and digests, by "
    "which two runs can be compared",
    Reason.INPUT_HELD_BY_PROVIDER: _HISTORY,
    Reason.INPUT_DELTA: _HISTORY,
    Reason.INPUT_COMPACTED: "record the messages as they were sent, after the compaction",
    Reason.INPUT_CHANGED: _AS_RECORDED,
    Reason.ORDER_NOT_RECORDED: f"{_ORDER}, {_STAMPS}",
    Reason.INPUT_NOT_RECORDED: f"{_CONTENT}; {_ORDER}, {_STAMPS}",
    Reason.ARGUMENTS_WITHHELD: f"{_CONTENT}, or record gen_ai.tool.call.arguments",
    Reason.ARGUMENTS_CUT: _LIMITS,
    Reason.ARGUMENTS_REDACTED: "let the redaction spare the arguments of runs that are to be replayed",
    Reason.CALL_AMBIGUOUS: "record gen_ai.tool.call.id on the tool's span (the guard does)",
    Reason.OUTCOME_NOT_RECORDED: "record gen_ai.tool.call.result, or the next request's messages",
    Reason.OUTCOME_CUT: _LIMITS,
    Reason.OUTCOME_REDACTED: "let the redaction spare the results of runs that are to be replayed",
    Reason.OUTCOME_CHANGED: _AS_RECORDED,
    Reason.EFFECT_NOT_DECLARED: "declare the tool deterministic and read-only, if it is",
    Reason.EXTERNAL: "declare it deterministic, if it is",
    Reason.SAMPLED: "give a function to recompute it with, or declare the model deterministic",
    Reason.FAN_IN: "",
    Reason.SOURCE_UNOBSERVED: "export the span that made it, and record call ids",
    Reason.SOURCE_AMBIGUOUS: "record call ids that are unique in their conversation",
    Reason.OUTPUT_NOT_RECORDED: "record gen_ai.output.messages",
    Reason.CONSTANT_INPUTS: "",
    Reason.SINGLE_CHAIN: "",
}
"""For each reason, what raises the decision; "" where nothing does or need."""


@lru_cache(maxsize=1024)
def remedy_of(reasons: tuple[Reason, ...], operation: Operation) -> str:
    """What to do first about a decision."""
    for reason in reasons:
        if reason is Reason.OUTCOME_NOT_RECORDED and operation is not Operation.TOOL:
            return f"{_CONTENT}, so that what came back is recorded"
        if REMEDIES[reason]:
            return REMEDIES[reason]
    return ""
