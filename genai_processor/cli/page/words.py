# SPDX-License-Identifier: Apache-2.0
"""What the words of a plan mean, in a sentence each."""

from __future__ import annotations

from genai_processor.replay import Choice, EdgeKind, Ending, Mode, OrderEvidence, Reason, State

CHOICES: dict[Choice, str] = {
    Choice.RECOMPUTE: "It is run again on what the replay hands it.",
    Choice.INJECT: "What is not computed again is taken from the record.",
    Choice.REFUSE: "It cannot be replayed.",
}

REASONS: dict[Reason, str] = {
    Reason.CYCLE: "it is on a circle of content edges",
    Reason.CONFLICTING_COPIES: "two spans have its id, and they differ",
    Reason.UNREADABLE: "its messages do not parse",
    Reason.INPUT_CHANGED: "its recorded input is not what was stamped when it was recorded",
    Reason.INPUT_CUT: "telemetry shortened its input",
    Reason.INPUT_REDACTED: "a marker stands for its input, or in it",
    Reason.INPUT_WITHHELD: "its input was not recorded: content capture was off",
    Reason.INPUT_HELD_BY_PROVIDER: "its input goes on from what only the provider keeps",
    Reason.INPUT_DELTA: "only what was new in its input was recorded",
    Reason.INPUT_COMPACTED: "a summary took the place of what was said",
    Reason.ORDER_NOT_RECORDED: "several nodes feed its list, and nothing records their order",
    Reason.INPUT_NOT_RECORDED: "its input is recorded nowhere",
    Reason.ARGUMENTS_WITHHELD: "its arguments are recorded nowhere",
    Reason.ARGUMENTS_CUT: "telemetry shortened its arguments",
    Reason.ARGUMENTS_REDACTED: "a marker stands in its arguments",
    Reason.CALL_AMBIGUOUS: "it cannot be told from another call, which ended otherwise",
    Reason.OUTCOME_NOT_RECORDED: "what came of it is recorded nowhere, and it may not be run",
    Reason.OUTCOME_CHANGED: "its recorded result is not what was stamped when it was recorded",
    Reason.OUTCOME_CUT: "telemetry shortened its result, and it may not be run",
    Reason.OUTCOME_REDACTED: "a marker stands in its result, and it may not be run",
    Reason.EFFECT_NOT_DECLARED: "nobody declared the tool read-only and deterministic",
    Reason.EXTERNAL: "its answer depends on something outside of the record",
    Reason.SAMPLED: "a model is sampled, and no function stands in for it",
    Reason.FAN_IN: "two or more independent nodes feed what is new in its input",
    Reason.SOURCE_UNOBSERVED: "something in its input was made by a node that is not in the record",
    Reason.SOURCE_AMBIGUOUS: "something in its input may come from several nodes",
    Reason.OUTPUT_NOT_RECORDED: "its output is not recorded, so that there is nothing to compare with",
    Reason.CONSTANT_INPUTS: "its input is constant: nobody in the record made it",
    Reason.SINGLE_CHAIN: "its input comes along one chain of nodes",
}

MODES: dict[Mode, str] = {
    Mode.OUTPUT: "it is not run; its recorded outcome is its value",
    Mode.INPUTS: "it is run on its recorded input, and its output is compared",
}

ORDERS: dict[OrderEvidence, str] = {
    OrderEvidence.ARRAY: "one JSON array on its own span",
    OrderEvidence.INDEXED: "indexed attributes of its own span, without a gap",
    OrderEvidence.STAMP: "the stamp of its recording",
    OrderEvidence.EVENTS: "events of its own span, in their order",
    OrderEvidence.NOT_RECORDED: "recorded nowhere; times are no record of it",
    OrderEvidence.NO_LIST: "its input is no list",
}

EDGES: dict[EdgeKind, str] = {
    EdgeKind.PROPOSAL: "a call, to the tool that it asks for",
    EdgeKind.RESULT: "a result, to the model that reads it",
    EdgeKind.ECHO: "what a model said, read by it again",
    EdgeKind.DELEGATE: "a tool's arguments, to the agent inside",
    EdgeKind.RETURN: "the last answer inside, to its tool",
    EdgeKind.DOCUMENT: "a retrieved document",
    EdgeKind.LINK: "a span link",
}

STATES: dict[State, str] = {
    State.WHOLE: "recorded whole",
    State.NOT_RECORDED: "not recorded",
    State.CHANGED: "changed after it was recorded",
    State.CUT: "cut",
    State.REDACTED: "redacted",
    State.WITHHELD: "withheld",
    State.HELD_BY_PROVIDER: "held by the provider",
    State.DELTA: "only what was new",
    State.COMPACTED: "compacted",
    State.UNREADABLE: "unreadable",
}

ENDINGS: dict[Ending, str] = {
    Ending.VALUE: "it returned a value",
    Ending.FAILURE: "it failed; the failure is handed back",
    Ending.PAUSED: "its framework suspended it",
    Ending.WAITS: "it was cancelled; in a replay it waits to be",
    Ending.UNKNOWN: "not recorded",
}
