# SPDX-License-Identifier: Apache-2.0
"""From a joined operation to its frozen node and edges."""

from __future__ import annotations

from operator import itemgetter

from genai_processor.replay.lists import ReadList
from genai_processor.replay.lookup import Op
from genai_processor.replay.order import is_ancestor
from genai_processor.replay.parts import EMPTY, Part, PartKind, PartList, part_list
from genai_processor.replay.records import (
    Edge,
    EdgeKind,
    Ending,
    Inputs,
    Node,
    Operation,
    OrderEvidence,
    Outcome,
    State,
    Structure,
)

_INFERENCE, _TOOL, _HANDOFF = Operation.INFERENCE, Operation.TOOL, Operation.HANDOFF
_NO_ORDER, _STAMP = OrderEvidence.NO_LIST, OrderEvidence.STAMP
_RETURN, _PROPOSAL, _RESULT_EDGE = EdgeKind.RETURN, EdgeKind.PROPOSAL, EdgeKind.RESULT
_WHOLE = State.WHOLE
_MANY = 64
"""So many readers of other values are compared with the first one."""
_new = tuple.__new__  # cheaper than the named tuples' own
_NO_LIST = ReadList(State.NOT_RECORDED, EMPTY, OrderEvidence.NO_LIST)


def frozen(op: Op) -> tuple[Node, tuple[Edge, ...]]:
    """The node of an operation whose edges, level and fan-in are known, and the edges into it."""
    draft = op.draft
    shown = draft.shown
    key = op.key
    operation = op.operation or _TOOL
    is_call = operation is _TOOL or operation is _HANDOFF
    if is_call and op.read:
        op.outcome = _outcome(op)
    begins = op.begins
    edges = [
        _new(
            Edge,
            (kind, producer.key, key, slot, at, equal and (len(producer.read) < 2 or _is_equal(op, slot, producer))),
        )
        for kind, producer, slot, at, equal, _ in op.found
    ]
    if len(edges) > 1:
        edges.sort(key=_edge_order)
        producers = tuple(sorted({e.producer for e in edges if e.kind is not _RETURN and (e.slot < 0 or e.slot >= begins)}))
    else:
        producers = tuple([e.producer for e in edges if e.kind is not _RETURN and (e.slot < 0 or e.slot >= begins)])
    structure = _new(
        Structure,
        (
            op.extends.key if op.extends is not None else None,
            begins,
            producers,
            op.fan_in,
            op.unobserved,
            op.ambiguous,
            op.cycle,
            draft.conflicting,
            op.call_ambiguous,
        ),
    )
    call = op.proposer[0].outcome.parts[op.proposer[1]] if is_call and op.proposer is not None else None
    inputs = _arguments(op, call) if is_call else _list(op)
    node = _new(
        Node,
        (
            key,
            operation,
            shown.name,
            op.tool,
            shown.model,
            shown.trace_id,
            (shown.span_id, *[witness.span_id for witness in draft.witnesses]),
            draft.above.key if draft.above is not None else None,
            draft.agent_name,
            draft.conversation,
            shown.dialect,
            op.call_id,
            call.position if call is not None else None,
            inputs,
            op.outcome,
            draft.composite,
            structure,
            tuple(sorted([other.key for other in op.attempts])),
        ),
    )
    return node, tuple(edges)


def _is_equal(op: Op, slot: int, producer: Op) -> bool:
    """Whether one of several readers read what came out in the end; of another kind of edge, True."""
    if op.inputs is None or not 0 <= slot < len(op.inputs.parts):
        return True
    part, made = op.inputs.parts[slot], producer.outcome.parts
    return part.kind is not PartKind.RESULT or not len(made) or made[0].digest == part.digest


_edge_order = itemgetter(Edge._fields.index("slot"), Edge._fields.index("kind"), Edge._fields.index("producer"))


def _arguments(op: Op, call: Part | None) -> Inputs:
    """A tool's arguments: as proposed, where that is recorded whole, else as its own span has them."""
    own = op.inputs if op.inputs is not None else _NO_LIST
    if call is not None and not call.missing and (op.proposer is None or op.proposer[0].outcome.state is _WHOLE):
        parts = own.parts
        if not (len(parts.tail) == 1 and parts.tail[0].digest == call.digest):
            parts = part_list((call._replace(position=0),))
        return _new(Inputs, (_WHOLE, parts, _NO_ORDER, b"", b"", 0, (), False))
    if own.state is not _WHOLE:
        return Inputs(own.state, own.parts, own.order, states=(own.state,))
    return Inputs(_WHOLE, own.parts, own.order)


def _list(op: Op) -> Inputs:
    shown = op.draft.shown
    held = shown.held
    read = op.inputs
    if read is None:
        order = OrderEvidence.NOT_RECORDED if op.operation is _INFERENCE else OrderEvidence.NO_LIST
        states = (*held, State.NOT_RECORDED)
        return Inputs(states[0], EMPTY, order, shown.system, shown.tools, states=states)
    states = held if read.state is _WHOLE or read.state in held else (read.state, *held)
    lacks = State.DELTA if read.unanswered and read.is_known else op.lacks
    if lacks is not None and lacks not in states:
        states = (*states, lacks) if read.state is _WHOLE else (lacks, *states)
    parts = _positioned(op, read.parts) if read.loose and (not states or read.order is _STAMP) else read.parts
    if not states:
        return _new(Inputs, (_WHOLE, parts, read.order, shown.system, shown.tools, 0, (), op.stamped))
    return Inputs(states[0], parts, read.order, shown.system, shown.tools, read.unanswered, states, op.stamped)


def _positioned(op: Op, parts: PartList) -> PartList:
    """The list with each result at the position of its call, where the call is in the list under another id.

    The call took the proposer's id: a result names it, and the tool that made the result was proposed by who said the call.
    """
    places: dict[tuple[int, int], int] = {}
    at: Op | None = op
    slots: dict[int, tuple[Op, int]] = {}
    results: dict[int, Op] = {}
    while at is not None:
        for kind, producer, slot, producer_slot, _, _ in at.found:
            if kind is EdgeKind.ECHO:
                slots.setdefault(slot, (producer, producer_slot))
            elif kind is _RESULT_EDGE:
                results.setdefault(slot, producer)
        at = at.extends
    made: list[Part] = []
    for slot, part in enumerate(parts):
        if part.kind is PartKind.CALL and slot in slots:
            producer, producer_slot = slots[slot]
            places[id(producer), producer_slot] = part.position or 0
        elif part.kind is PartKind.RESULT and part.position == -1 and slot in results:
            proposer = results[slot].proposer
            if proposer is not None and (id(proposer[0]), proposer[1]) in places:
                tool = part.tool or results[slot].tool
                part = part._replace(position=places[id(proposer[0]), proposer[1]], tool=tool)
        made.append(part)
    return part_list(made)


def _first(read: list[tuple[Op, Part]]) -> Part | None:
    """What was read before a history was edited: by the reader that everybody who read something else descends from."""
    reader, part = min(read, key=lambda one: (one[0].level, one[0].key))
    others = [other for other, one in read if one.digest != part.digest]
    return part if len(others) <= _MANY and all(is_ancestor(reader, other) for other in others) else None


def _outcome(op: Op) -> Outcome:
    """A tool's outcome: how it ended is told by its own span, what came of it by whoever read it.

    Where readers disagree, and none of them read what its span says, the span is right; without one, whoever read it first.
    """
    own = op.outcome
    told = [
        (reader, part)
        for reader, part in op.read
        if not part.missing and reader.inputs is not None and reader.inputs.state is _WHOLE
    ]
    if not told:
        return own
    part = told[0][1]
    if len(told) > 1:
        mine = own.parts[0].digest if len(own.parts) else None
        part = next((one for _, one in told if one.digest == mine), part)
        if part.digest != mine and any(one.digest != part.digest for _, one in told):
            first = _first(told) if own.ending is Ending.UNKNOWN else None
            if first is None:
                return own
            part = first
    readers = [reader.key for reader, one in op.read if one.digest == part.digest]
    if len(readers) > 1:
        readers = sorted(set(readers))
    made = PartList(
        None, (_new(Part, (part.role, part.kind, None, part.digest, 0, part.call_id, part.value, part.missing)),), 0
    )
    if own.ending is Ending.UNKNOWN:
        return Outcome(Ending.VALUE, _WHOLE, made, witnesses=tuple(readers))
    ending, state, _, finish, error_type, message, witnesses, _ = own
    return _new(Outcome, (ending, state, made, finish, error_type, message, (*witnesses, *readers), False))
