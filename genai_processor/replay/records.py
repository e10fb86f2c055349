# SPDX-License-Identifier: Apache-2.0
"""Frozen records of what was recorded: operations, what went into them and came out, and who made what of whom.

Every id of a node, agent or container is the *key* of a span: `"TRACE_ID:SPAN_ID"`, lower-case hex (`key_of`). Keys, and
with them every record here, are the same whatever the order of spans and files, whatever the clocks said, and however many
copies of a span there are. How the digests are made stands in `digests`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from genai_processor.replay.digests import failure_digest, input_digest, output_digest
from genai_processor.replay.parts import PartList


class Operation(enum.StrEnum):
    """What a node did."""

    INFERENCE = "inference"
    """One response of a model (`chat`, `generate_content`, `text_completion`, OpenInference's LLM)."""
    TOOL = "tool"
    """One tool call, however many spans show it."""
    RETRIEVAL = "retrieval"
    RERANKING = "reranking"
    EMBEDDINGS = "embeddings"
    HANDOFF = "handoff"
    """A framework passed control to another agent; no tool ran."""


class State(enum.StrEnum):
    """Whether a recorded value is all of it. What is not `whole` must not be computed with."""

    WHOLE = "whole"
    NOT_RECORDED = "not_recorded"
    CUT = "cut"
    """Telemetry shortened it: a length limit, dropped attributes or events, a gap in indexed attributes."""
    REDACTED = "redacted"
    """A marker stands for it, or in it."""
    WITHHELD = "withheld"
    """Its shape is recorded, its content is not: content capture was off."""
    HELD_BY_PROVIDER = "held_by_provider"
    """It continues a response or a conversation that the provider keeps."""
    DELTA = "delta"
    """Only what is new was recorded."""
    COMPACTED = "compacted"
    """A summary took the place of what was said."""
    UNREADABLE = "unreadable"
    """It does not parse."""
    CHANGED = "changed"
    """The stamp of the recording says that it was another one."""


class OrderEvidence(enum.StrEnum):
    """By what the order of a list input is known."""

    ARRAY = "array"
    """One JSON array attribute on the node's own span."""
    INDEXED = "indexed"
    """Numerically indexed attributes of one span, without a gap."""
    EVENTS = "events"
    """Events of one span, in their order, none dropped."""
    STAMP = "stamp"
    """The stamp of the recording (`stamps`): its slots in order, each with its digest. Values that another span has are
    filled in; the others are missing."""
    NOT_RECORDED = "not_recorded"
    """It has a list input, and its order is recorded nowhere. Times, log records, links and several spans are no record."""
    NO_LIST = "no_list"
    """Its input is no list: a tool's arguments."""


class Inputs(NamedTuple):
    """What went into a node.

    Attributes:
        state: Whether the recorded input is whole.
        parts: The slots in recorded order. A tool has one, its arguments, of kind `call`; a retrieval or an embedding has
            its query; a reranking its query, then its documents. Empty if nothing is recorded.
        order: By what the order is known.
        system: 16 bytes over the system instructions recorded apart from the messages, b"" if none are.
        tools: 16 bytes over the tool definitions recorded on the node, b"" if none are.
        unanswered_results: Results in the list before whose place there is no call that they answer.
        states: Every state that is wrong with it, the first being `state`; empty if it is whole.
        stamped: The stamp of the recording says the same.
    """

    state: State
    parts: PartList
    order: OrderEvidence
    system: bytes = b""
    tools: bytes = b""
    unanswered_results: int = 0
    states: tuple[State, ...] = ()
    stamped: bool = False

    @property
    def digest(self) -> bytes:
        """16 bytes over `parts`, `system` and `tools` (`digests.input_digest`).

        b"" if it is not recorded whole, unless a stamp says all of it: then only values are missing.
        """
        if self.state is not State.WHOLE and (self.order is not OrderEvidence.STAMP or self.state in _NOT_ALL):
            return b""
        return input_digest(self.parts, system=self.system, tools=self.tools)


_NOT_ALL = frozenset({State.DELTA, State.COMPACTED, State.HELD_BY_PROVIDER})


class Ending(enum.StrEnum):
    """How a node ended, as far as that is recorded."""

    VALUE = "value"
    """It returned `parts`."""
    FAILURE = "failure"
    """It raised, or said that it failed: hand it back as an exception of `error_type`."""
    PAUSED = "paused"
    """A framework's control flow suspended it (`ApprovalRequired`, `GraphInterrupt`): hand back that class."""
    WAITS = "waits"
    """It was cancelled. That is nothing to hand back: in a replay it waits until the framework cancels it."""
    UNKNOWN = "unknown"
    """No outcome is recorded."""


class Outcome(NamedTuple):
    """What came out of a node.

    Attributes:
        ending: How it ended.
        state: Whether `parts` are whole. A failure or a pause needs none: its state is `whole` if its type or message is
            recorded.
        parts: An inference's parts in order; a tool's single part of kind `result`; a retrieval's documents as ranked.
        finish: The class of an inference's finish reason (`digests.finish_class`), or None.
        error_type: The recorded type of a failure or pause, fully qualified if the record is, or None.
        error_message: Its message, or None.
        witnesses: Keys of the spans on which it was read: the node's own, or the consumer whose prompt holds it.
        stamped: A stamp says what `parts` there were, though not all of their values are recorded.
    """

    ending: Ending
    state: State
    parts: PartList
    finish: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    witnesses: tuple[str, ...] = ()
    stamped: bool = False

    @property
    def digest(self) -> bytes:
        """16 bytes (`digests.output_digest`, `digests.failure_digest`); b"" if no outcome is recorded whole, or stamped."""
        if self.stamped:
            return output_digest(self.parts, self.finish)
        if self.state is not State.WHOLE or self.ending is Ending.UNKNOWN:
            return b""
        if self.ending is Ending.VALUE:
            return output_digest(self.parts, self.finish)
        return failure_digest(self.error_type, self.error_message)


class EdgeKind(enum.StrEnum):
    """What an edge of the content graph carries."""

    PROPOSAL = "proposal"
    """A call: from the inference that proposed it to the tool node. Producer slot: the call's place in the output."""
    RESULT = "result"
    """A tool's result, to the inference whose list holds it."""
    ECHO = "echo"
    """What an inference said, to the inference whose list holds it again."""
    DELEGATE = "delegate"
    """From a composite tool to the first inference inside it."""
    RETURN = "return"
    """From the last inference inside to its composite tool. It counts neither for ancestry, fan-in nor cycles."""
    DOCUMENT = "document"
    """From a retrieval or a reranking to the node whose input holds its document."""
    LINK = "link"
    """A span link that says content went along it. It names no slot (-1)."""


class Edge(NamedTuple):
    """A value went from one node to another.

    Attributes:
        kind: What it carries.
        producer: Key of the node that made the value.
        consumer: Key of the node whose recorded input holds it.
        slot: Which part of the consumer's `inputs.parts` holds it, or -1.
        producer_slot: Which part of the producer's `outcome.parts` it is, or -1.
        equal: The recorded values are equal by digest. False: the framework changed it on the way, or one is not recorded;
            then what the consumer gets is the consumer's recorded part.
    """

    kind: EdgeKind
    producer: str
    consumer: str
    slot: int
    producer_slot: int = 0
    equal: bool = True


class Structure(NamedTuple):
    """How a node hangs in the content graph: what `decide` needs to know of others.

    Attributes:
        extends: Key of the inference whose whole input and output its list begins with, the longest such, or None. Where the
            values in its first `begins` slots came from is known from that one.
        begins: How many slots those are; the slots from there on are new. 0 if it extends none.
        producers: Keys of the nodes that made something in its new slots, each once, sorted. Two or more that are not each
            other's ancestors are a fan-in.
        fan_in: Two or more independent producers (observed or not) feed its new slots.
        unobserved: New slots that an unobserved producer filled.
        ambiguous: New slots that several nodes may have filled.
        cycle: It is on a cycle of content edges.
        conflicting: Two spans have its id and differ.
        call_ambiguous: It cannot be told from another call whose outcome is another.
    """

    extends: str | None = None
    begins: int = 0
    producers: tuple[str, ...] = ()
    fan_in: bool = False
    unobserved: int = 0
    ambiguous: int = 0
    cycle: bool = False
    conflicting: bool = False
    call_ambiguous: bool = False


class Node(NamedTuple):
    """One operation, however many spans show it.

    Attributes:
        key: The key of its outermost span.
        operation: What it did.
        name: The operation as recorded (`chat`, `generate_content`, `execute_tool`): what recompute functions go by.
        tool: A tool's name; a retrieval's data source; None else.
        model: The model's name, for an inference, an embedding or a reranking.
        trace_id: Its trace.
        span_ids: Every span that shows it, the outermost first, then sorted.
        agent: Key of the innermost composite tool or container around it, or None.
        agent_name: Name of the innermost named agent around it, or None.
        conversation: The conversation id that it has or inherits, or None.
        dialect: Name of the instrumentation's dialect, for `audit`.
        call_id: The call id as recorded, for a tool, or None.
        call_position: For a tool, where its call stands among the calls of the proposing response, or None.
        inputs: What went in.
        outcome: What came out.
        composite: An agent or an inference is inside: recomputing it is replaying what is inside.
        structure: How it hangs in the content graph.
        attempts: Keys of other executions of the same call (a retry under the same id), sorted; this one's not among them.
    """

    key: str
    operation: Operation
    name: str
    tool: str | None
    model: str | None
    trace_id: str
    span_ids: tuple[str, ...]
    agent: str | None
    agent_name: str | None
    conversation: str | None
    dialect: str
    call_id: str | None
    call_position: int | None
    inputs: Inputs
    outcome: Outcome
    composite: bool
    structure: Structure
    attempts: tuple[str, ...] = ()


def key_of(trace_id: str, span_id: str) -> str:
    """The key of a span."""
    return f"{trace_id}:{span_id}"
