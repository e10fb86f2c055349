# SPDX-License-Identifier: Apache-2.0
"""Operations by what they said or did, looked up from the inside outward.

A call id is unique only where it was given: `call_1` occurs in every agent of every run. So whoever asks is answered from
the innermost agent around it that has an answer, then from its trace, then from other traces of its conversation.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from genai_processor.replay.lists import ReadList, best
from genai_processor.replay.parts import EMPTY, Part
from genai_processor.replay.records import EdgeKind, Ending, Operation, Outcome, State
from genai_processor.replay.shown import Stands
from genai_processor.replay.tree import Draft
from genai_processor.spans.records import View

_INFERENCE = Operation.INFERENCE
_WHOLE, _VALUE = State.WHOLE, Ending.VALUE
_new = tuple.__new__  # cheaper than the named tuple's own
MANY = 64
"""More claimants of one value than this are not told apart."""


class Found(NamedTuple):
    """An edge before every node has its key. It is not `sure` if only equal values speak for it, and no id or link."""

    kind: EdgeKind
    producer: Op
    slot: int
    producer_slot: int
    equal: bool
    sure: bool = True


class Op:
    """One node while the content graph is built.

    Attributes:
        draft: Its place in the span tree.
        inputs: What went in: of an inference its list, of a tool its arguments.
        outcome: What came out, as its own spans say.
        call_id: The call id, recorded on its span or taken from the proposal that it was joined with.
        full: For an inference that is recorded whole, the mark of its input and output.
        extends: The inference whose `full` its list begins with.
        begins: The length of that.
        found: The edges into it, those of `extends` left out.
        unobserved: New slots whose producer is not in the record.
        ambiguous: New slots that several may have produced.
        proposer: The inference that proposed it, and where in that one's output, for a tool.
        read: Who read its result, and as what part.
        attempts: Other executions of the same call.
        call_ambiguous: It cannot be told from a call with another outcome.
        arguments: The part that says a tool's arguments, and whether they are whole.
        lacks: What its list is instead of whole, if it does not begin where its conversation does.
        level: How long the longest chain of producers before it is.
        cycle: It is on a cycle.
        fan_in: Two or more independent producers feed its new slots.
        stamped: What the stamp of its recording says of its input is what is known of it.
    """

    __slots__ = (
        "ambiguous",
        "attempts",
        "begins",
        "call_ambiguous",
        "call_id",
        "cycle",
        "draft",
        "extends",
        "fan_in",
        "found",
        "full",
        "inputs",
        "key",
        "lacks",
        "level",
        "operation",
        "outcome",
        "proposer",
        "read",
        "stamped",
        "tool",
        "trace_id",
        "unobserved",
    )

    def __init__(self, draft: Draft) -> None:
        shown = draft.shown
        self.draft = draft
        self.key = draft.key
        self.trace_id = shown.trace_id
        self.operation = shown.operation
        self.tool = shown.tool
        self.call_id = shown.call_id
        self.inputs: ReadList | None = shown.inputs
        self.outcome: Outcome = shown.output if shown.output is not None else _UNKNOWN
        if draft.witnesses:
            self._ask_witnesses(draft)
        if self.call_id is None and (shown.operation is Operation.TOOL):
            self.call_id = _named_by_step(draft)
        self.full: int | None = None
        self.extends: Op | None = None
        self.begins = 0
        self.found: list[Found] = []
        self.unobserved = 0
        self.ambiguous = 0
        self.proposer: tuple[Op, int] | None = None
        self.read: list[tuple[Op, Part]] = []
        self.attempts: list[Op] = []
        self.call_ambiguous = False
        self.lacks: State | None = None
        self.level = 0
        self.cycle = False
        self.fan_in = False
        self.stamped = False
        if shown.operation is _INFERENCE:
            self.complete()

    def complete(self) -> None:
        """Find what an inference's whole input and output are known by, if they are known."""
        outcome = self.outcome
        known = outcome.stamped or (outcome.state is _WHOLE and outcome.ending is _VALUE)
        if known and self.inputs is not None and self.inputs.is_known and len(outcome.parts):
            self.full = self.inputs.parts.mark_after(outcome.parts)

    def _ask_witnesses(self, draft: Draft) -> None:
        """Take from inner spans what the outermost one leaves out."""
        lists = [self.inputs, *[shown.inputs for shown in draft.witnesses]]
        self.inputs = best([found for found in lists if found is not None])
        for shown in draft.witnesses:
            if self.call_id is None:
                self.call_id = shown.call_id
            if self.tool is None:
                self.tool = shown.tool
            # What a server answered is not yet what the framework gave back.
            said = shown.output if shown.view is not View.MCP_SERVER else None
            if self.outcome.state is not State.WHOLE and said is not None and said.state is State.WHOLE:
                self.outcome = said


def _named_by_step(draft: Draft) -> str | None:
    """The call that the steps directly around a tool say they run."""
    above = draft.above
    while above is not None and above.shown.stands is Stands.STEP:
        if above.shown.call_id is not None:
            return above.shown.call_id
        above = above.above
    return None


_UNKNOWN = Outcome(Ending.UNKNOWN, State.NOT_RECORDED, EMPTY)


_T = TypeVar("_T")


class Entry(NamedTuple, Generic[_T]):
    """An operation under a key, with what is there."""

    op: Op
    what: _T


class Index(Generic[_T]):
    """Operations of one world under keys."""

    def __init__(self) -> None:
        self._entries: dict[object, list[Entry[_T]]] = {}
        self._scopes: dict[object, dict[int, list[Entry[_T]]]] = {}

    def add(self, key: object, op: Op, what: _T) -> None:
        """Put an operation under a key."""
        entry = _new(Entry, (op, what))
        found = self._entries.get(key)
        if found is None:
            self._entries[key] = [entry]
        else:
            found.append(entry)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def within(self, key: object) -> list[Op]:
        """Every operation under a key."""
        return [entry.op for entry in self._entries.get(key, ())]

    def nearest(self, key: object, op: Op) -> list[Entry[_T]]:
        """The operations under a key that are nearest to another one, that one itself left out."""
        entries = self._entries.get(key)
        if entries is None:
            return []
        if len(entries) == 1:
            other = entries[0].op
            if other is op:
                return []
            return entries if other.trace_id == op.trace_id or _one_conversation(op, other) else []
        scopes = self._scopes.get(key)
        if scopes is None:
            scopes = self._scopes[key] = {}
            for entry in entries:
                scopes.setdefault(id(entry.op.draft.scope), []).append(entry)
        scope = op.draft.scope
        while scope is not None:
            found = [entry for entry in scopes.get(id(scope), ()) if entry.op is not op]
            if found:
                return found
            scope = scope.scope
        found = [entry for entry in entries if entry.op is not op and entry.op.trace_id == op.trace_id]
        at_top = [entry for entry in found if entry.op.draft.scope is None]
        return at_top or found or [entry for entry in entries if entry.op is not op and _one_conversation(op, entry.op)]


def _one_conversation(one: Op, other: Op) -> bool:
    return one.draft.conversation is not None and one.draft.conversation == other.draft.conversation
