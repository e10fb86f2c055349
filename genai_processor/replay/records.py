# SPDX-License-Identifier: Apache-2.0
"""What a replay is made of: frozen records of what was recorded, who made what of whom, and what was decided.

Every id of a node, agent or container is the *key* of a span: `"TRACE_ID:SPAN_ID"`, lower-case hex (`key_of`). Keys, and
with them every record here, are the same whatever the order of spans and files, whatever the clocks said, and however many
copies of a span there are. How the digests are made stands in `digests`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload


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


class Role(enum.StrEnum):
    """Whose part it is, whatever word a framework writes for it: a tool's result is `tool`, a call `assistant`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class PartKind(enum.StrEnum):
    """What a part is."""

    TEXT = "text"
    CALL = "call"
    """A proposed tool call; its value is the arguments."""
    RESULT = "result"
    """A tool's result as a model reads it; its value is as recorded, its digest is of it without known wrappers."""
    DOCUMENT = "document"
    """A retrieved document, or one to be ranked."""
    REASONING = "reasoning"
    OTHER = "other"
    """A file, an image, a built-in tool of the provider: whatever else was recorded, as it was."""


class Part(NamedTuple):
    """One slot of an ordered list: a part of a message, an argument set, a document.

    Attributes:
        role: Whose part it is.
        kind: What it is.
        tool: For a call or a result, the tool's name, if it is recorded or follows from the call; else None.
        digest: 16 bytes over role, kind, tool and canonical value (`digests.part_digest`), but not over `position`: an
            output's part and the same part in a later input have one digest. A result's leaves out the tool, which many do
            not record.
        position: For a call, how many calls stand before it in the list. For a result, the position of the call that it
            answers; -1 where the list holds no such call. None for everything else. It stands for the call id, which a run
            mints anew.
        call_id: The id as recorded, for a call or a result; never part of a digest.
        value: The recorded value (text, or what JSON text says), or None if `plan` was told to keep none.
        missing: The value is not recorded: the part is there, what it said is not (or a marker stands in its place).
    """

    role: Role
    kind: PartKind
    tool: str | None
    digest: bytes
    position: int | None = None
    call_id: str | None = None
    value: Any = None
    missing: bool = False


class PartList(Sequence[Part]):
    """An ordered list of parts that shares its beginning with the list that it extends: histories repeat, memory does not.

    Attributes:
        prefix: The list with which it begins, or None.
        tail: The parts after that.
        marks: For each part of the tail, a number over all parts up to it: equal beginnings have equal marks. It is good for
            looking up, and another one in each process.
        mark: The last of these.
        calls: How many of all its parts are calls.
        digest: 16 bytes over all parts, in order and with their positions (`digests.part_list`). Lists are equal if it is.
        hasher: What makes the digest of a list that goes on from here, or None.
    """

    __slots__ = ("_length", "calls", "digest", "hasher", "mark", "marks", "prefix", "tail")

    def __init__(
        self,
        prefix: PartList | None,
        tail: tuple[Part, ...],
        marks: tuple[int, ...],
        mark: int,
        calls: int,
        digest: bytes,
        hasher: Any = None,
    ) -> None:
        self.prefix = prefix
        self.tail = tail
        self.marks = marks
        self.mark = mark
        self.calls = calls
        self.digest = digest
        self.hasher = hasher
        self._length: int = len(tail) + (prefix._length if prefix is not None else 0)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Part]:
        for found in reversed(list(self.lists())):
            yield from found.tail

    def __reversed__(self) -> Iterator[Part]:
        for found in self.lists():
            yield from reversed(found.tail)

    def lists(self) -> Iterator[PartList]:
        """This list and those with which it begins, the longest first."""
        found: PartList | None = self
        while found is not None:
            yield found
            found = found.prefix

    def since(self, start: int) -> tuple[Part, ...]:
        """The parts from a position on, at the cost of those only."""
        tails: list[tuple[Part, ...]] = []
        for found in self.lists():
            if found._length <= start:
                break
            begin = found._length - len(found.tail)
            tails.append(found.tail[start - begin :] if begin < start else found.tail)
        return tails[0] if len(tails) == 1 else tuple([part for tail in reversed(tails) for part in tail])

    @overload
    def __getitem__(self, index: int) -> Part: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Part, ...]: ...

    def __getitem__(self, index: int | slice) -> Part | tuple[Part, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        at = index + self._length if index < 0 else index
        if 0 <= at < self._length:
            for found in self.lists():
                begin = found._length - len(found.tail)
                if at >= begin:
                    return found.tail[at - begin]
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartList) and self._length == other._length and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PartList({list(self)!r})"


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
        digest: 16 bytes over `parts`, `system` and `tools` (`digests.input_digest`); b"" if nothing is recorded. Where the
            order is known by a stamp, also of an input some of whose values are missing.
        unanswered_results: Results in the list before whose place there is no call that they answer.
        states: Every state that is wrong with it, the first being `state`; empty if it is whole.
        stamped: The stamp of the recording says the same.
    """

    state: State
    parts: PartList
    order: OrderEvidence
    system: bytes = b""
    tools: bytes = b""
    digest: bytes = b""
    unanswered_results: int = 0
    states: tuple[State, ...] = ()
    stamped: bool = False


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
        digest: 16 bytes (`digests.output_digest`, `digests.failure_digest`), b"" if no outcome is recorded whole.
        witnesses: Keys of the spans on which it was read: the node's own, or the consumer whose prompt holds it.
    """

    ending: Ending
    state: State
    parts: PartList
    finish: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    digest: bytes = b""
    witnesses: tuple[str, ...] = ()


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


class SlotSource(enum.StrEnum):
    """Where the value of a slot comes from."""

    CONSTANT = "constant"
    """A system or user part, or a query: recorded on the node, made by nobody in the record."""
    PRODUCED = "produced"
    """By the producer of the edge into this slot."""
    UNOBSERVED = "unobserved"
    """An assistant's or a tool's part that no recorded span made."""
    AMBIGUOUS = "ambiguous"
    """Several nodes may have made it."""


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


class Choice(enum.StrEnum):
    """What is done with a node. `refuse` is the lowest, `recompute` the highest."""

    RECOMPUTE = "recompute"
    INJECT = "inject"
    REFUSE = "refuse"


class Mode(enum.StrEnum):
    """How a node is injected."""

    OUTPUT = "output"
    """It is not run; its recorded outcome is its value."""
    INPUTS = "inputs"
    """The caller's function runs it on its recorded input, nothing from upstream, and its output is compared."""


class Reason(enum.StrEnum):
    """Why a decision came about. `reasons.REMEDIES` says what to do about each."""

    CYCLE = "cycle"
    CONFLICTING_COPIES = "conflicting_copies"
    UNREADABLE = "unreadable"
    INPUT_CUT = "input_cut"
    INPUT_REDACTED = "input_redacted"
    INPUT_WITHHELD = "input_withheld"
    INPUT_HELD_BY_PROVIDER = "input_held_by_provider"
    INPUT_DELTA = "input_delta"
    INPUT_COMPACTED = "input_compacted"
    INPUT_CHANGED = "input_changed"
    ORDER_NOT_RECORDED = "order_not_recorded"
    INPUT_NOT_RECORDED = "input_not_recorded"
    ARGUMENTS_WITHHELD = "arguments_withheld"
    ARGUMENTS_CUT = "arguments_cut"
    ARGUMENTS_REDACTED = "arguments_redacted"
    CALL_AMBIGUOUS = "call_ambiguous"
    OUTCOME_NOT_RECORDED = "outcome_not_recorded"
    OUTCOME_CUT = "outcome_cut"
    OUTCOME_REDACTED = "outcome_redacted"
    OUTCOME_CHANGED = "outcome_changed"
    EFFECT_NOT_DECLARED = "effect_not_declared"
    EXTERNAL = "external"
    SAMPLED = "sampled"
    FAN_IN = "fan_in"
    SOURCE_UNOBSERVED = "source_unobserved"
    SOURCE_AMBIGUOUS = "source_ambiguous"
    OUTPUT_NOT_RECORDED = "output_not_recorded"
    CONSTANT_INPUTS = "constant_inputs"
    SINGLE_CHAIN = "single_chain"


class Declared(NamedTuple):
    """What the user says of what the record cannot show. Each entry is a pattern (`get_*`), matched with case.

    Attributes:
        deterministic: Tools that are read-only *and* answer the same every time; the operation names `retrieval`,
            `reranking` and `embeddings`, and the names of data sources and embedding models, can stand here, too.
        models: Models that answer the same to the same (a scripted one, a cache).
        recompute: Operation names (`chat`) for which the caller gave a function that may stand for a sampled model; `*` is
            every inference.
    """

    deterministic: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()


class Decision(NamedTuple):
    """What is done with a node, and why.

    Attributes:
        choice: Recompute it, inject it, or refuse.
        reasons: Why; the first decided.
        modes: The sound modes of an injection. For `recompute`, those that would be sound if it were injected instead; for
            `refuse`, empty, or `(OUTPUT,)` where `allow_unverified` may lift the refusal (its outcome is recorded).
        remedy: What to do so that the decision is a higher one; "" if there is nothing to do.
        order: By what the order of its input is known.
        structure_allows_recompute: Nothing but a declaration or a function is missing for `recompute`.
        edges: The content edges into the node's new slots, and the echoes of the node whose whole input and output its list
            begins with (`Structure.extends`). `Plan.edges_into` has those into the older slots, too.
        covered_by: Key of the outermost injected composite tool or container that it is inside of, or None.
        unverified_upstream: A node that it depends on was refused and nothing around that could be injected.
    """

    choice: Choice
    reasons: tuple[Reason, ...]
    modes: tuple[Mode, ...]
    remedy: str
    order: OrderEvidence
    structure_allows_recompute: bool
    edges: tuple[Edge, ...] = ()
    covered_by: str | None = None
    unverified_upstream: bool = False


class Container(NamedTuple):
    """A span that only holds others: an agent, a workflow, a step. It has no decision of its own.

    Attributes:
        key: Its key.
        name: Its span's name.
        agent_name: The agent's name if it is one's, else None.
        worst: The worst decision inside, or None if no node is inside.
        inside: Keys of the nodes whose innermost container it is, sorted.
        parent: Key of the container or composite tool around it, or None.
        inputs: What it says that went in, read only if it is injected.
        outcome: What it says that came out, likewise.
        injected: A boundary moved up to it: its recorded outcome stands for everything inside.
    """

    key: str
    name: str
    agent_name: str | None
    worst: Choice | None
    inside: tuple[str, ...]
    parent: str | None
    inputs: Inputs
    outcome: Outcome
    injected: bool = False


class Boundary(NamedTuple):
    """Where a replay stops recomputing because of a refused node.

    Attributes:
        refused: Key of the node.
        moved_to: Key of the composite tool or container around it that is injected instead, or None: then the node stands
            alone, and what descends from it is `unverified_upstream`.
    """

    refused: str
    moved_to: str | None


class Problem(NamedTuple):
    """Something about the input that no node can carry.

    Attributes:
        place: A file, with its line if there is one, or the key of a span.
        problem: What is wrong, and what to do.
    """

    place: str
    problem: str


class Plan:
    """What to do with every node of one or more recorded runs.

    Attributes:
        nodes: Every node, producers before consumers: the nodes of one conversation (or trace) together, by how long the
            longest chain of producers before them is, then by key. Nodes on a cycle, and what depends on them, come last of
            theirs.
        decisions: The decision of each, by key.
        containers: Every container, by key.
        boundaries: The boundaries, in the order of the refused nodes.
        problems: What could not be read.
        declared: What the decisions rest on.
    """

    __slots__ = (
        "_by_span",
        "_consumers",
        "_nodes",
        "boundaries",
        "containers",
        "decisions",
        "declared",
        "nodes",
        "problems",
    )

    def __init__(
        self,
        nodes: tuple[Node, ...],
        decisions: Mapping[str, Decision],
        containers: Mapping[str, Container],
        boundaries: tuple[Boundary, ...],
        problems: tuple[Problem, ...],
        declared: Declared,
    ) -> None:
        self.nodes = nodes
        self.decisions = decisions
        self.containers = containers
        self.boundaries = boundaries
        self.problems = problems
        self.declared = declared
        self._nodes: dict[str, Node] | None = None
        self._by_span: dict[str, list[Node]] | None = None
        self._consumers: dict[str, list[Edge]] | None = None

    def node(self, key: str) -> Node:
        """The node with a key.

        Raises:
            KeyError: No node has it.
        """
        if self._nodes is None:
            self._nodes = {node.key: node for node in self.nodes}
        return self._nodes[key]

    def node_of(self, span_id: str, trace_id: str | None = None) -> Node | None:
        """The node that a span shows; None if none does, or if several traces have the id and none is named."""
        if self._by_span is None:
            self._by_span = {}
            for node in self.nodes:
                for shown in node.span_ids:
                    self._by_span.setdefault(shown, []).append(node)
        found = self._by_span.get(span_id, [])
        if trace_id is not None:
            found = [node for node in found if node.trace_id == trace_id]
        return found[0] if len(found) == 1 else None

    def edges_into(self, key: str) -> tuple[Edge, ...]:
        """All content edges into a node by slot, also those into the slots that it has from the node that it extends."""
        found = list(self.decisions[key].edges)
        at = self.node(key).structure.extends
        while at is not None:
            found.extend([edge._replace(consumer=key) for edge in self.decisions[at].edges if edge.slot >= 0])
            at = self.node(at).structure.extends
        return tuple(sorted(found, key=lambda edge: (edge.slot, edge.kind, edge.producer)))

    def edges_from(self, key: str) -> Sequence[Edge]:
        """The content edges out of a node, in the order of their consumers."""
        if self._consumers is None:
            self._consumers = {}
            for node in self.nodes:
                for edge in self.decisions[node.key].edges:
                    self._consumers.setdefault(edge.producer, []).append(edge)
        return self._consumers.get(key, ())


def key_of(trace_id: str, span_id: str) -> str:
    """The key of a span."""
    return f"{trace_id}:{span_id}"
