# SPDX-License-Identifier: Apache-2.0
"""The content graph of one world: who consumed whose output.

A world is the traces of one conversation; a trace that names none is a world by itself. What joins are call ids, looked up
from the innermost agent outward, and whole parts that are equal. Never times, never parts of texts, and never order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from genai_processor.replay.claims import assign_ids
from genai_processor.replay.lookup import Entry, Found, Index, Op, proposed_before
from genai_processor.replay.records import EdgeKind, Operation, OrderEvidence, Part, PartKind, Role, State
from genai_processor.replay.tree import Draft, Tree, link_target
from genai_processor.retry.policy import same_tool
from genai_processor.spans.values import index_like, usable_id

_TOOL, _INFERENCE = Operation.TOOL, Operation.INFERENCE
_CALL, _RESULT = PartKind.CALL, PartKind.RESULT
_ASSISTANT, _USER = Role.ASSISTANT, Role.USER
_WHOLE = State.WHOLE
_MANY = 64
"""More claimants of one value than this are not told apart."""


class World:
    """The operations of one world, joined.

    Attributes:
        ops: Its operations, sorted by key.
        missing: Links that point at spans which are not in the record, by the operation that has them.
        open: The calls that an inference read of and that nobody in this world proposed, with the inference.
    """

    def __init__(self, trees: list[Tree], targets: Mapping[str, Tree], ops_of: dict[int, Op]) -> None:
        self._trees = trees
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
        self._said: Index[tuple[int, Part]] = Index()
        self._said_ids: Index[tuple[int, Part]] | None = None
        self._said_parts: Index[tuple[int, Part]] | None = None
        self._full: Index[None] = Index()
        self._tools: Index[None] = Index()
        self._tool_ids: Index[None] | None = None
        self._documents: Index[int] = Index()
        self._inferences = [op for op in self.ops if op.operation is _INFERENCE]
        self._calls = [op for op in self.ops if op.operation is _TOOL or op.operation is Operation.HANDOFF]
        self._any_document = False

    def join(self) -> None:
        """Find every edge that is inside of this world."""
        for op in self._inferences:
            if op.full is not None:
                self._full.add(op.full, op, None)
            for at, part in enumerate(op.outcome.parts):
                if part.kind is _CALL and part.call_id is not None and usable_id(part.call_id, part.tool) is not None:
                    self._said.add((part.call_id, part.digest), op, (at, part))
        for op in self._inferences:
            self._extend(op)
        assign_ids(self._calls, self._inferences)
        for op in self._calls:
            self._propose(op)
        for op in self._calls:
            if op.call_id is not None:
                digest = _arguments_digest(op)
                if digest is not None:
                    self._tools.add((op.call_id, digest), op, None)
        self._index_documents()
        for op in self._inferences:
            self._consume(op)
        for op in self.ops:
            if op.draft.shown.links:
                self._link(op)
            if op.operation is Operation.RERANKING:
                self._rank(op)
        self._delegate()
        self._note_attempts()

    # Most values are found under an id and a digest. What is found under less is put there only if somebody asks.

    def _under_id(self) -> Index[tuple[int, Part]]:
        if self._said_ids is None:
            self._said_ids = Index()
            for op in self._inferences:
                for at, part in enumerate(op.outcome.parts):
                    if part.kind is _CALL and part.call_id is not None and usable_id(part.call_id, part.tool) is not None:
                        self._said_ids.add(part.call_id, op, (at, part))
        return self._said_ids

    def _under_value(self) -> Index[tuple[int, Part]]:
        if self._said_parts is None:
            self._said_parts = Index()
            for op in self._inferences:
                for at, part in enumerate(op.outcome.parts):
                    if not part.missing:
                        self._said_parts.add(part.digest, op, (at, part))
        return self._said_parts

    def _tools_under_id(self) -> Index[None]:
        if self._tool_ids is None:
            self._tool_ids = Index()
            for op in self._calls:
                if op.call_id is not None:
                    self._tool_ids.add(op.call_id, op, None)
        return self._tool_ids

    # -- inferences ------------------------------------------------------------------------------------------------

    def _extend(self, op: Op) -> None:
        """Find the inference whose whole input and output its list begins with, the longest."""
        inputs = op.inputs
        if inputs is None or (inputs.state is not _WHOLE and inputs.order is not OrderEvidence.STAMP):
            return
        for found in inputs.parts.lists():
            length = len(found)
            for mark in reversed(found.marks):
                if mark in self._full:
                    entries = self._full.nearest(mark, op)
                    if entries:
                        if len(entries) > 1:
                            op.ambiguous += 1
                        producer = min(entries, key=_entry_key).op
                        op.extends, op.begins = producer, length
                        assert producer.inputs is not None
                        start = len(producer.inputs.parts)
                        for at in range(start, length):
                            op.found.append(Found(EdgeKind.ECHO, producer, at, at - start, True))
                        return
                length -= 1

    def _consume(self, op: Op) -> None:
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
            elif self._any_document and not part.missing:
                self._document(op, slot, part)
            slot += 1

    def _result(self, op: Op, slot: int, part: Part, calls: Mapping[int | None, Part]) -> None:
        entries: list[Entry[None]] = []
        call: Part | None = None
        if part.call_id is not None:
            call = calls.get(part.position) if part.position != -1 else None
            if call is None and part.position != -1:
                call = _call_at(op, part.position or 0)
            if call is not None:
                entries = self._tools.nearest((part.call_id, call.digest), op)
            if not entries:
                entries = self._tools_under_id().nearest(part.call_id, op)
                if entries:
                    entries = [entry for entry in entries[: _MANY + 1] if _answers(entry.op, part, call)]
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
        op.found.append(Found(EdgeKind.RESULT, found, slot, 0, equal))
        found.read.append((op, part))

    def results_from(self, other: World, op: Op, call: Part) -> None:
        """Take the result of a call from the world that proposed it, where this one has not shown who made it."""
        assert op.inputs is not None
        slot = op.begins - 1
        for part in op.inputs.parts.since(op.begins):
            slot += 1
            if part.kind is not _RESULT or part.call_id != call.call_id or any(found.slot == slot for found in op.found):
                continue
            entries = other._tools_under_id().within(call.call_id)
            ops = _delivered(entries, part) if entries else []
            if len(ops) == 1:
                op.unobserved -= 1
                op.found.append(Found(EdgeKind.RESULT, ops[0], slot, 0, True))
                ops[0].read.append((op, part))

    def _echo(self, op: Op, slot: int, part: Part) -> None:
        entries: list[Entry[tuple[int, Part]]] = []
        if part.kind is _CALL and part.call_id is not None:
            entries = self._said.nearest((part.call_id, part.digest), op) or self._under_id().nearest(part.call_id, op)
            entries = [entry for entry in entries if _fits_call(part, entry.what[1])]
        sure = bool(entries)
        if not entries and not part.missing:
            entries = self._under_value().nearest(part.digest, op)[: _MANY + 1]
            entries = [entry for entry in entries if not _holds(entry.op, part)]
        elif len(entries) > 1:
            entries = [entry for entry in entries[: _MANY + 1] if not proposed_before(entry.op, part)] or entries
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
            op.found.append(Found(EdgeKind.ECHO, entry.op, slot, at, said.digest == part.digest, sure))

    # -- tools -----------------------------------------------------------------------------------------------------

    def _propose(self, op: Op) -> None:
        """Find who proposed a call; its arguments are then those of the proposal."""
        if op.proposer is None and op.call_id is not None:
            digest = _arguments_digest(op)
            entries = self._said.nearest((op.call_id, digest), op) if digest is not None else []
            if not entries:
                entries = self._under_id().nearest(op.call_id, op)[: _MANY + 1]
                entries = [entry for entry in entries if _fits(entry.what[1].tool, op)]
            if op.draft.composite:
                entries = [entry for entry in entries if not _inside(entry.op, op)]
            entries = [entry for entry in entries if not proposed_before(entry.op, entry.what[1])]
            if len(entries) > 1 and len({id(entry.op) for entry in entries}) > 1:
                op.ambiguous += 1
                return
            if entries:
                entry = min(entries, key=lambda entry: entry.what[0]) if len(entries) > 1 else entries[0]
                op.proposer = (entry.op, entry.what[0])
        if op.proposer is None:
            op.unobserved += 1
            return
        producer, at = op.proposer
        said = producer.outcome.parts[at]
        own = op.inputs
        equal = own is None or not len(own.parts) or own.parts[0].digest == said.digest
        named = op.draft.shown.call_id is not None
        op.found.append(Found(EdgeKind.PROPOSAL, producer, 0, at, equal, named))

    def _delegate(self) -> None:
        """What went into a composite tool and came out of it again inside, where whole parts are equal."""
        inside: dict[int, list[Op]] = {}
        for op in self._inferences:
            scope = op.draft.scope
            while scope is not None and not scope.composite:
                scope = scope.scope
            if scope is not None and scope.shown.operation is _TOOL:
                inside.setdefault(id(scope), []).append(op)
        for op in self._calls:
            members = inside.get(id(op.draft))
            if not members:
                continue
            asked = op.draft.shown.delegated
            own = op.inputs.parts if op.inputs is not None else None
            if asked and own is not None and len(own):
                for member in members:
                    if member.extends is not None or member.inputs is None:
                        continue
                    for slot, part in enumerate(member.inputs.parts):
                        if part.role is _USER and part.digest in asked:
                            member.found.append(Found(EdgeKind.DELEGATE, op, slot, 0, True, False))
            results = {part.digest for part in op.outcome.parts}
            last = [member for member in members if member.draft.shown.answer and member.draft.shown.answer in results]
            if len(last) == 1:
                op.found.append(Found(EdgeKind.RETURN, last[0], -1, 0, True))

    def _note_attempts(self) -> None:
        groups: dict[tuple[int, int], list[Op]] = {}
        for op in self._calls:
            if op.proposer is not None:
                groups.setdefault((id(op.proposer[0]), op.proposer[1]), []).append(op)
        for group in groups.values():
            if len(group) > 1:
                for op in group:
                    op.attempts = [other for other in group if other is not op]

    # -- documents and links -----------------------------------------------------------------------------------------

    def _index_documents(self) -> None:
        for op in self.ops:
            if op.operation is Operation.RETRIEVAL or op.operation is Operation.RERANKING:
                for digest, at in op.draft.shown.documents:
                    self._any_document = True
                    self._documents.add(digest, op, at)
                for at, part in enumerate(op.outcome.parts):
                    if not part.missing:
                        self._documents.add(part.digest, op, at)

    def _document(self, op: Op, slot: int, part: Part) -> None:
        entries = self._documents.nearest(part.digest, op)
        producers = {id(entry.op) for entry in entries}
        if len(producers) > 1:
            rankers = [entry for entry in entries if entry.op.operation is Operation.RERANKING]
            entries = rankers if len({id(entry.op) for entry in rankers}) == 1 else entries
            producers = {id(entry.op) for entry in entries}
        if len(producers) > 1:
            op.ambiguous += 1
        elif producers:
            entry = min(entries, key=lambda entry: entry.what)
            op.found.append(Found(EdgeKind.DOCUMENT, entry.op, slot, entry.what, True, False))

    def _rank(self, op: Op) -> None:
        """A reranking's own documents come from retrievals."""
        if op.inputs is None:
            return
        for slot, part in enumerate(op.inputs.parts):
            if part.kind is PartKind.DOCUMENT and not part.missing:
                entries = [e for e in self._documents.nearest(part.digest, op) if e.op.operation is Operation.RETRIEVAL]
                if len({id(entry.op) for entry in entries}) == 1:
                    op.found.append(Found(EdgeKind.DOCUMENT, entries[0].op, slot, entries[0].what, True, False))
                elif entries:
                    op.ambiguous += 1

    def _link(self, op: Op) -> None:
        for link in op.draft.shown.links:
            target = link_target(self._targets, link)
            if target is None:
                self.missing.append((op, f"{link.trace_id}:{link.span_id}"))
                op.unobserved += 1
                continue
            producer = self._ops_of.get(id(target))
            if producer is None or producer is op:
                if producer is None:
                    op.unobserved += 1  # an agent's content, and which of its nodes made it is not said
                continue
            if not any(found.producer is producer for found in op.found):
                op.found.append(Found(EdgeKind.LINK, producer, -1, -1, True))


def _key(op: Op) -> str:
    return op.key


def _entry_key(entry: Entry[None]) -> str:
    return entry.op.key


def _arguments_digest(op: Op) -> bytes | None:
    if op.proposer is not None:
        return op.proposer[0].outcome.parts[op.proposer[1]].digest
    inputs = op.inputs
    return inputs.parts[0].digest if inputs is not None and len(inputs.parts) else None


def _fits(tool: str | None, op: Op) -> bool:
    return tool is None or op.tool is None or same_tool(tool, op.tool)


def _fits_call(part: Part, other: Part) -> bool:
    return part.tool is None or other.tool is None or same_tool(part.tool, other.tool)


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


def _answers(op: Op, part: Part, call: Part | None) -> bool:
    """Whether a result may be a tool's: the tool is the same, and it was not proposed with other arguments."""
    if not _fits(part.tool, op):
        return False
    if call is None or op.proposer is None:
        return True
    return op.proposer[0].outcome.parts[op.proposer[1]].digest == call.digest


def _inside(inner: Op, op: Op) -> bool:
    """Whether an inference is inside of a composite tool: it cannot have proposed it."""
    scope: Draft | None = inner.draft.scope if op.draft.composite else None
    while scope is not None:
        if scope is op.draft:
            return True
        scope = scope.scope
    return False


def worlds_of(trees: Iterable[Tree]) -> list[list[Tree]]:
    """The trees of each world: those of one conversation together, every other by itself; all by their trace ids."""
    ordered = sorted(trees, key=lambda tree: tree.trace_id)
    head = list(range(len(ordered)))
    by_conversation: dict[str, int] = {}
    for at, tree in enumerate(ordered):
        names = [tree.conversation] if tree.conversation is not None else _conversations(tree)
        for name in names:
            other = by_conversation.setdefault(name, at)
            one, two = sorted((_head(head, at), _head(head, other)))
            head[two] = one
    worlds: dict[int, list[Tree]] = {}
    for at, tree in enumerate(ordered):
        worlds.setdefault(_head(head, at), []).append(tree)
    return list(worlds.values())


def join_worlds(worlds: list[World]) -> list[list[Op]]:
    """Join worlds where an input proves it: it repeats a call, id and arguments, that exactly one other world proposed.

    Ids that count (`call_1`) prove nothing.

    Returns:
        The operations of each world, or of worlds that belong together, sorted by key.
    """
    open_calls = [(at, *call) for at, world in enumerate(worlds) for call in world.open]
    if not open_calls:
        return [world.ops for world in worlds]
    wanted = {(part.call_id, part.digest) for _, _, _, part in open_calls}
    sayers: dict[tuple[str | None, bytes], list[tuple[int, Op, int]]] = {}
    for at, world in enumerate(worlds):
        for op in world.ops:
            if op.operation is _INFERENCE:
                for slot, part in enumerate(op.outcome.parts):
                    if part.kind is _CALL and (part.call_id, part.digest) in wanted:
                        sayers.setdefault((part.call_id, part.digest), []).append((at, op, slot))
    head = list(range(len(worlds)))
    for at, op, slot, part in open_calls:
        found = [sayer for sayer in sayers.get((part.call_id, part.digest), []) if sayer[0] != at]
        if len(found) != 1 or _apart(op, found[0][1]):
            continue
        other, producer, producer_slot = found[0]
        op.unobserved -= 1
        op.found.append(Found(EdgeKind.ECHO, producer, slot, producer_slot, True))
        worlds[at].results_from(worlds[other], op, part)
        one, two = sorted((_head(head, at), _head(head, other)))
        head[two] = one
    groups: dict[int, list[Op]] = {}
    for at, world in enumerate(worlds):
        groups.setdefault(_head(head, at), []).extend(world.ops)
    for group in groups.values():
        group.sort(key=_key)
    return list(groups.values())


def _apart(one: Op, other: Op) -> bool:
    """Whether two operations name different conversations."""
    first, second = one.draft.conversation, other.draft.conversation
    return first is not None and second is not None and first != second


def _head(head: list[int], at: int) -> int:
    while head[at] != at:
        head[at] = head[head[at]]
        at = head[at]
    return at


def _conversations(tree: Tree) -> set[str]:
    return {draft.conversation for draft in tree.nodes if draft.conversation is not None}
