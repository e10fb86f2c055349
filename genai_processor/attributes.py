# SPDX-License-Identifier: Apache-2.0
"""Every attribute, metric and event name that this package writes.

All of them start with ``genai.``: the ``gen_ai.`` namespace belongs to OpenTelemetry's semantic conventions. Values are
strings unless the name says otherwise. No argument and no result of a tool is ever written.
"""

from __future__ import annotations

from typing import Final

# On a span that shows a tool call, and on the log event.

GENAI_RETRY_VERDICT: Final = "genai.retry.verdict"
"""May the call be tried again: `no_retry_needed`, `retryable_pre_execution`, `retryable_read_only`,
`retryable_same_call_id`, `quarantined` or `quarantined_unknown`."""

GENAI_RETRY_REASON: Final = "genai.retry.reason"
"""Why, as one word from a closed list, such as `commitment_marker` or `arguments_withheld`."""

GENAI_RETRY_EVIDENCE: Final = "genai.retry.evidence"
"""What the verdict rests on: an array of short strings."""

GENAI_RETRY_EXECUTION: Final = "genai.retry.execution"
"""Whether the tool's body ran: `not_started`, `started` (both only on positive proof) or `unknown`."""

GENAI_RETRY_EFFECT: Final = "genai.retry.effect"
"""What the user declared of the tool: `read_only`, `idempotent` or `non_idempotent`."""

GENAI_RETRY_ARGUMENTS_STATE: Final = "genai.retry.arguments.state"
"""What the trace holds of the arguments: `complete`, `malformed`, `cut` or `withheld`."""

GENAI_RETRY_CALL_ID_SOURCE: Final = "genai.retry.call_id.source"
"""Where the call id comes from: `span`, `guard`, `proposal` or `none`."""

GENAI_RETRY_CALL_ID: Final = "genai.retry.call_id"
"""The call id, only where the span itself had none and another one names it."""

GENAI_RETRY_DUPLICATE_OF: Final = "genai.retry.duplicate_of"
"""Span id, in hex, of the execution that this one repeats."""

GENAI_RETRY_ATTEMPT: Final = "genai.retry.attempt"
"""Which execution of its action this is, counted from 1: an int."""

GENAI_RETRY_SUSPECTED: Final = "genai.retry.suspected"
"""Whether a duplicate is only suspected: a bool. On metrics."""

GENAI_RETRY_LATE: Final = "genai.retry.late"
"""True where the evidence came after the tool's span had gone: a bool. On the log event."""

GENAI_RETRY_ENTRY_ID: Final = "genai.retry.entry_id"
"""The ledger entry to settle: random, says nothing of the call."""

GENAI_RETRY_ACTION: Final = "genai.retry.action"
"""Digest of the action, only where `GENAI_PROCESSOR_STAMP_DIGESTS` asks for it."""

GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
"""OpenTelemetry's own attribute for the tool's name, repeated on the log event."""

GENAI_GUARD_MODE: Final = "genai.guard.mode"
"""Whether the guard in front of the tool only watched (`observe`) or refused (`enforce`)."""

GENAI_GUARD_OUTCOME: Final = "genai.guard.outcome"
"""What the guard did with the call: `granted`, `refused`, `handed_back`, `would_refuse` or `unguarded`."""

GENAI_REPLAY_RUN_ID: Final = "genai.replay.run_id"
"""On every span that was made in a replay: which one. Such a span shows no effect, and is not judged."""

# On a span that shows a model's response, only where `GENAI_PROCESSOR_RECORD_FOR_REPLAY` asks for it (`replay.stamps`).

GENAI_REPLAY_VERSION: Final = "genai.replay.version"
"""By which rules lists were read and digests made: digests of another version are not compared."""

GENAI_REPLAY_KEY: Final = "genai.replay.key"
"""Which `GENAI_PROCESSOR_DIGEST_KEY` the digests are keyed with: eight hex digits that do not tell it. Absent: with none."""

GENAI_REPLAY_LEFT_OUT: Final = "genai.replay.left_out"
"""Why a stamp says less than it might: `too_large` (more text than is looked at while a span ends), `too_many` parts."""

GENAI_REPLAY_INPUT_SOURCE: Final = "genai.replay.input.source"
"""Where the list was read: the attribute's name, `span events`, or `request` if a hook saw what the model was asked."""

GENAI_REPLAY_INPUT_DIGEST: Final = "genai.replay.input.digest"
"""Digest over the ordered parts of the model's input, in hex."""

GENAI_REPLAY_INPUT_COUNT: Final = "genai.replay.input.count"
"""How many parts those are: an int."""

GENAI_REPLAY_INPUT_BASE: Final = "genai.replay.input.base"
"""The earlier list that the input begins with: that one's digest; after a `+`, the digest of the output that follows it."""

GENAI_REPLAY_INPUT_SLOTS: Final = "genai.replay.input.slots"
"""The parts after the base, in order: an array of strings, each with role and kind, digest, call id and tool, no content."""

GENAI_REPLAY_INPUT_CONTINUES: Final = "genai.replay.input.continues"
"""The request went on from what the provider keeps: a `response` whose list is the base, or a `conversation`."""

GENAI_REPLAY_SYSTEM_DIGEST: Final = "genai.replay.system.digest"
"""Digest of the system instructions that are recorded apart from the messages."""

GENAI_REPLAY_TOOLS_DIGEST: Final = "genai.replay.tools.digest"
"""Digest of the tool definitions."""

GENAI_REPLAY_OUTPUT_SOURCE: Final = "genai.replay.output.source"
"""Where the response was read, as for the input."""

GENAI_REPLAY_OUTPUT_DIGEST: Final = "genai.replay.output.digest"
"""Digest over the ordered parts of the model's response, in hex."""

GENAI_REPLAY_OUTPUT_SLOTS: Final = "genai.replay.output.slots"
"""Those parts, as for the input."""

# On metrics only.

GENAI_LEDGER_STATE: Final = "genai.ledger.state"
"""State of a ledger entry: a value of `genai_processor.ledger.State`."""

GENAI_PROCESSOR_FAULT: Final = "genai.processor.fault"
"""What went wrong inside the processor, or in a processor behind it: one of `genai_processor.telemetry.Fault`."""

# The log event.

EVENT_QUARANTINED: Final = "genai.retry.quarantined"
"""A tool call may have committed: emitted for each span of it that ends so, and when evidence comes later."""

# Metrics: all observable, read from plain integers when they are collected.

METRIC_VERDICTS: Final = "genai.retry.verdicts"
"""Counter of judged tool spans by `genai.retry.verdict` and `genai.retry.reason`. Unit: ``{span}``."""

METRIC_DUPLICATES: Final = "genai.retry.duplicates"
"""Counter of executions that repeat another one, by `genai.retry.suspected`. Unit: ``{execution}``."""

METRIC_REBILLED_TOKENS: Final = "genai.retry.rebilled_tokens"
"""Counter of input tokens of the inferences that proposed a duplicated action again. Unit: ``{token}``."""

METRIC_LEDGER_ENTRIES: Final = "genai.ledger.entries"
"""Gauge of ledger entries by `genai.ledger.state`. Unit: ``{entry}``."""

METRIC_GUARD_CALLS: Final = "genai.guard.calls"
"""Counter of calls that came to the guard, by `genai.guard.mode` and `genai.guard.outcome`. Unit: ``{call}``."""

METRIC_FAULTS: Final = "genai.processor.faults"
"""Counter of what went wrong, by `genai.processor.fault`. Unit: ``{fault}``."""
