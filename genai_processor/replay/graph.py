# SPDX-License-Identifier: Apache-2.0
"""The content graph of one world: who consumed whose output.

What joins are call ids, looked up from the innermost agent outward, and whole parts that are equal. Never times, never parts
of texts, and never order.
"""

from __future__ import annotations

from collections.abc import Mapping

from genai_processor.replay.callers import delegate, may_answer, note_attempts, propose
from genai_processor.replay.claims import assign_ids
from genai_processor.replay.decisions import Problem
from genai_processor.replay.documents import documents_under_digests, follow_links, rank_documents, read_document
from genai_processor.replay.known import Known, Said
from genai_processor.replay.lookup import MANY, Entry, Found, Index, Op
from genai_processor.replay.parts import Part, PartKind, Role
from genai_processor.replay.records import EdgeKind, Operation
from genai_processor.replay.tree import Tree
from genai_processor.retry.policy import same_tool
from genai_processor.spans.values import index_like

_INFERENCE = Operation.INFERENCE
_CALL, _RESULT = PartKind.CALL, PartKind.RESULT
_ECHO, _RESULT_EDGE = EdgeKind.ECHO, EdgeKind.RESULT
_ASSISTANT = Role.ASSISTANT
_new = tuple.__new__  # cheaper than the named tuple's own


class World:
    """The operations of one world, joined.

    Args:
        trees: Its traces.
        targets: What links may lead to, by trace id.
        ops_of: The operation of each node there, by the id of its draft; those of this world are added.

    Attributes:
        first: The smallest of its trace ids.
        ops: Its operations, sorted by key.
        inferences: Those that are inferences.
        missing: Links that point at spans which are not in the record, by the operation that has them.
        noted: What is wrong with the stamps of its spans.
        open: The calls that an inference read of and that nobody in this world proposed: the inference, the slot, the call.
    """

    def __init__(self, trees: list[Tree], targets: Mapping[str, Tree], ops_of: dict[int, Op]) -> None:
        self.first = min(tree.trace_id for tree in trees)
        self._targets = targets
        self._ops_of = ops_of
        self.ops: list[Op] = []
        self.missing: list[tuple[Op, str]] = []
        self.open: list[tuple[Op, int, Part]] = []
        for tree in trees:
            for draft in tree.nodes:
                op = ops_of[id(draft)] = Op(draft)
                self.ops.append(op)
        self.ops.sort(key=_key)
        self.inferences = [op for op in self.ops if op.operation is _INFERENCE]
        self._calls = [op for op in self.ops if op.operation is Operation.TOOL or op.operation is Operation.HANDOFF]
        self._known = Known([], [])
        self.noted: list[Problem] = []

    def join(self) -> None:
        """Find every edge that is inside of this world."""
        known = self._known = Known(self.inferences, self._calls)
        for op in self.inferences:
            _extend(op, known.full)
        assign_ids(self._calls, self.inferences, known)
        for op in self._calls:
            propose(op, known)
        known.add_calls()
        documents = documents_under_digests(self.ops)
        for op in self.inferences:
            self._consume(op, documents)
        for op in self.ops:
            if op.draft.shown.links:
                self.missing.extend([(op, key) for key in follow_links(op, self._targets, self._ops_of)])
            if op.operation is Operation.RERANKING:
                rank_documents(op, documents)
        delegate(self._calls, self.inferences)
        note_attempts(self._calls)

    def _consume(self, op: Op, documents: Index[int]) -> None:
        """Find who made each new part of a list."""
        inputs = op.inputs
        if inputs is None:
            return
        slot = op.begins
        fresh = inputs.parts.since(op.begins)
        extended = op.extends.inputs if op.extends is not None else None
        said = inputs.parts.since(len(extended.parts)) if extended is not None else fresh
        calls = {part.position: part for part in said if part.kind is _CALL}
        for part in fresh:
            kind = part.kind
            if kind is _RESULT:
                self._result(op, slot, part, calls)
            elif kind is _CALL or part.role is _ASSISTANT:
                self._echo(op, slot, part)
            elif documents and not part.missing:
                read_document(op, slot, part, documents)
            slot += 1

    def _result(self, op: Op, slot: int, part: Part, calls: Mapping[int | None, Part]) -> None:
        entries: list[Entry[None]] = []
        if part.call_id is not None:
            call = calls.get(part.position) if part.position != -1 else None
            if call is None and part.position != -1:
                call = _call_at(op, part.position or 0)
            if call is not None:
                entries = self._known.run.nearest((part.call_id, call.digest), op)
            if not entries:
                entries = self._known.run_by_id.nearest(part.call_id, op)
                entries = [entry for entry in entries[: MANY + 1] if may_answer(entry.op, part, call)]
        if not entries:
            op.unobserved += 1
            return
        ops = [entry.op for entry in entries]
        if len(ops) > 1:
            ops = _delivered(ops, part)
        if len(ops) > 1:
            op.ambiguous += 1
            return
        found = ops[0]
        own = found.outcome.parts
        equal = not len(own) or own[0].digest == part.digest
        op.found.append(_new(Found, (_RESULT_EDGE, found, slot, 0, equal, True)))
        found.read.append((op, part))

    def _echo(self, op: Op, slot: int, part: Part) -> None:
        known = self._known
        entries: list[Entry[Said]] = []
        if part.kind is _CALL and part.call_id is not None:
            entries = known.said.nearest((part.call_id, part.digest), op) or known.said_by_id.nearest(part.call_id, op)
            entries = [entry for entry in entries if _fits_call(part, entry.what[1])]
        sure = bool(entries)
        if not entries and not part.missing:
            entries = known.said_by_value.nearest(part.digest, op)[: MANY + 1]
            entries = [entry for entry in entries if not _holds(entry.op, part)]
        elif len(entries) > 1:
            entries = [entry for entry in entries[: MANY + 1] if not known.only_repeats(entry.op, part)] or entries
        producers = {id(entry.op) for entry in entries}
        if not producers:
            op.unobserved += 1
            if part.kind is _CALL and part.call_id is not None and not index_like(part.call_id, part.tool):
                self.open.append((op, slot, part))
        elif len(producers) > 1:
            op.ambiguous += 1
        else:
            entry = min(entries, key=lambda entry: entry.what[0])
            at, said = entry.what
            op.found.append(Found(_ECHO, entry.op, slot, at, said.digest == part.digest, sure))

    def take_over(self, other: World, op: Op, slot: int, call: Part, producer: Op, at: int) -> None:
        """Join an open call with the world that proposed it, and take its result from there, if nobody here made it.

        Args:
            other: The world that proposed the call.
            op: The inference that read of it.
            slot: Where in its list.
            call: The call.
            producer: The inference that proposed it.
            at: Where in its output.
        """
        assert op.inputs is not None
        op.unobserved -= 1
        op.found.append(Found(_ECHO, producer, slot, at, True))
        for place, part in enumerate(op.inputs.parts.since(op.begins), op.begins):
            if part.kind is not _RESULT or part.call_id != call.call_id or any(found.slot == place for found in op.found):
                continue
            entries = other._known.run_by_id.within(call.call_id)
            ops = _delivered(entries, part) if entries else []
            if len(ops) == 1:
                op.unobserved -= 1
                op.found.append(Found(_RESULT_EDGE, ops[0], place, 0, True))
                ops[0].read.append((op, part))

    def let_go(self) -> None:
        """Undo what operations know of each other: circles, which only the garbage collector would find."""
        for op in self.ops:
            op.found = []
            op.read = []
            op.attempts = []


def _key(op: Op) -> str:
    return op.key


def _extend(op: Op, full: Index[None]) -> None:
    """Find the inference whose whole input and output a list begins with, the longest."""
    inputs = op.inputs
    if inputs is None or not inputs.is_known:
        return
    for found in inputs.parts.lists():
        length = len(found)
        for mark in reversed(found.marks):
            if mark in full and (entries := full.nearest(mark, op)):
                if len(entries) > 1:
                    op.ambiguous += 1
                producer = min([entry.op for entry in entries], key=_key)
                op.extends, op.begins = producer, length
                assert producer.inputs is not None
                start = len(producer.inputs.parts)
                op.found.extend([_new(Found, (_ECHO, producer, at, at - start, True, True)) for at in range(start, length)])
                return
            length -= 1


def _fits_call(part: Part, other: Part) -> bool:
    return part.tool is None or other.tool is None or part.tool == other.tool or same_tool(part.tool, other.tool)


def _delivered(ops: list[Op], part: Part) -> list[Op]:
    """Of several executions of one call, the one whose outcome was read; equal outcomes are interchangeable."""
    equal = [op for op in ops if len(op.outcome.parts) and op.outcome.parts[0].digest == part.digest]
    if equal:
        return [min(equal, key=_key)]
    silent = [op for op in ops if not len(op.outcome.parts)]
    return silent if len(silent) == 1 else ops


def _call_at(op: Op, position: int) -> Part | None:
    """The call at a position among the calls of a list."""
    assert op.inputs is not None
    for found in op.inputs.parts.lists():
        if position >= found.calls:
            return None
        before = found.prefix.calls if found.prefix is not None else 0
        if position >= before:
            for part in found.tail:
                if part.kind is _CALL and part.position == position:
                    return part
    return None


def _holds(op: Op, part: Part) -> bool:
    """Whether a producer's own input holds the part already: then it only said it again."""
    if op.inputs is None:
        return False
    return any(mine.digest == part.digest for mine in reversed(op.inputs.parts))
