# SPDX-License-Identifier: Apache-2.0
"""Who proposed each tool call, what agents inside of it were given and gave back, and which calls are attempts of one."""

from __future__ import annotations

from genai_processor.replay.known import Known, arguments_digest
from genai_processor.replay.lookup import MANY, Found, Op
from genai_processor.replay.parts import Part, Role
from genai_processor.replay.records import EdgeKind, Operation
from genai_processor.replay.tree import Draft, composite_around
from genai_processor.retry.policy import same_tool

_TOOL = Operation.TOOL
_PROPOSAL = EdgeKind.PROPOSAL
_new = tuple.__new__  # cheaper than the named tuple's own


def propose(op: Op, known: Known) -> None:
    """Find who proposed a call; its arguments are then those of the proposal."""
    if op.proposer is None and op.call_id is not None:
        digest = arguments_digest(op)
        entries = known.said.nearest((op.call_id, digest), op) if digest is not None else []
        if not entries:
            entries = known.said_by_id.nearest(op.call_id, op)[: MANY + 1]
            entries = [entry for entry in entries if fits(entry.what[1].tool, op)]
        if op.draft.composite:
            entries = [entry for entry in entries if not _is_inside(entry.op, op)]
        fresh = [entry for entry in entries if not known.only_repeats(entry.op, entry.what[1])]
        if digest is None and len(fresh) < len(entries):
            op.ambiguous += 1  # an id that is used again does not tell which call it is
            return
        entries = fresh
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
    op.found.append(_new(Found, (_PROPOSAL, producer, 0, at, equal, named)))


def fits(tool: str | None, op: Op) -> bool:
    """Whether a name that a model or a prompt writes may be that of a tool."""
    return tool is None or op.tool is None or tool == op.tool or same_tool(tool, op.tool)


def may_answer(op: Op, part: Part, call: Part | None) -> bool:
    """Whether a result may be a tool's: the tool is the same, and it was not proposed with other arguments."""
    if not fits(part.tool, op):
        return False
    if call is None or op.proposer is None:
        return True
    return op.proposer[0].outcome.parts[op.proposer[1]].digest == call.digest


def _is_inside(inner: Op, op: Op) -> bool:
    """Whether an inference is inside of a composite tool: it cannot have proposed it."""
    scope: Draft | None = inner.draft.scope
    while scope is not None:
        if scope is op.draft:
            return True
        scope = scope.scope
    return False


def delegate(calls: list[Op], inferences: list[Op]) -> None:
    """Find what went into a composite tool and came out of it again inside, where whole parts are equal."""
    inside: dict[int, list[Op]] = {}
    known: dict[int, Draft | None] = {}
    for op in inferences:
        scope = composite_around(op.draft.scope, known)
        if scope is not None and scope.shown.operation is _TOOL:
            inside.setdefault(id(scope), []).append(op)
    for op in calls if inside else ():
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
                    if part.role is Role.USER and part.digest in asked:
                        member.found.append(Found(EdgeKind.DELEGATE, op, slot, 0, True, False))
        results = {part.digest for part in op.outcome.parts}
        last = [member for member in members if member.draft.shown.answer and member.draft.shown.answer in results]
        if len(last) == 1:
            op.found.append(Found(EdgeKind.RETURN, last[0], -1, 0, True))


def note_attempts(calls: list[Op]) -> None:
    """Let executions of one proposal know of each other."""
    groups: dict[tuple[int, int], list[Op]] = {}
    for op in calls:
        if op.proposer is not None:
            groups.setdefault((id(op.proposer[0]), op.proposer[1]), []).append(op)
    for group in groups.values():
        if len(group) > 1:
            for op in group:
                op.attempts = [other for other in group if other is not op]
