# SPDX-License-Identifier: Apache-2.0
"""From a joined operation to its frozen node and edges."""

from __future__ import annotations

from genai_processor.replay.digests import EMPTY, input_digest, output_digest, part_list
from genai_processor.replay.lists import ReadList
from genai_processor.replay.lookup import Op
from genai_processor.replay.records import (
    Edge,
    EdgeKind,
    Ending,
    Inputs,
    Node,
    Operation,
    OrderEvidence,
    Outcome,
    Part,
    PartKind,
    PartList,
    State,
    Structure,
)

_INFERENCE, _TOOL = Operation.INFERENCE, Operation.TOOL
_RETURN, _PROPOSAL, _RESULT_EDGE = EdgeKind.RETURN, EdgeKind.PROPOSAL, EdgeKind.RESULT
_WHOLE = State.WHOLE
_new = tuple.__new__  # cheaper than the named tuples' own
_NO_LIST = ReadList(State.NOT_RECORDED, EMPTY, OrderEvidence.NO_LIST)


def frozen(op: Op) -> tuple[Node, tuple[Edge, ...]]:
    """The node of an operation whose edges, level and fan-in are known, and the edges into it."""
    draft = op.draft
    shown = draft.shown
    key = op.key
    edges = tuple(
        [_new(Edge, (kind, producer.key, key, slot, at, equal)) for kind, producer, slot, at, equal, _ in op.found]
    )
    begins = op.begins
    if len(edges) > 1:
        edges = tuple(sorted(edges, key=_edge_order))
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
    is_call = op.operation is _TOOL or op.operation is Operation.HANDOFF
    call = op.proposer[0].outcome.parts[op.proposer[1]] if op.proposer is not None else None
    node = _new(
        Node,
        (
            key,
            op.operation or _TOOL,
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
            _arguments(op, call) if is_call else _list(op),
            _outcome(op) if is_call else op.outcome,
            draft.composite,
            structure,
            tuple(sorted([other.key for other in op.attempts])),
        ),
    )
    return node, edges


def _edge_order(edge: Edge) -> tuple[int, EdgeKind, str]:
    return edge.slot, edge.kind, edge.producer


def _arguments(op: Op, call: Part | None) -> Inputs:
    """A tool's arguments: as proposed, where that is recorded whole, else as its own span has them."""
    own = op.inputs if op.inputs is not None else _NO_LIST
    if call is not None and not call.missing and (op.proposer is None or op.proposer[0].outcome.state is _WHOLE):
        if len(own.parts) == 1 and own.parts.tail and own.parts.tail[0].digest == call.digest:
            parts = own.parts
        else:
            parts = part_list((call._replace(position=0),))
        return Inputs(_WHOLE, parts, OrderEvidence.NO_LIST, digest=input_digest(parts))
    if own.state is not _WHOLE:
        return Inputs(own.state, own.parts, own.order, states=(own.state,))
    return Inputs(_WHOLE, own.parts, own.order, digest=input_digest(own.parts))


def _list(op: Op) -> Inputs:
    shown = op.draft.shown
    held = shown.held
    read = op.inputs
    if read is None:
        order = OrderEvidence.NOT_RECORDED if op.operation is _INFERENCE else OrderEvidence.NO_LIST
        states = (*held, State.NOT_RECORDED)
        return Inputs(states[0], EMPTY, order, shown.system, shown.tools, states=states)
    states = held if read.state is _WHOLE or read.state in held else (read.state, *held)
    if read.unanswered and read.state is _WHOLE:
        states = (*states, State.DELTA)
    parts = _positioned(op, read.parts) if read.loose and not states else read.parts
    digest = b""
    if not states or read.order is OrderEvidence.STAMP:
        digest = input_digest(parts, system=shown.system, tools=shown.tools)
    if not states:
        return Inputs(_WHOLE, parts, read.order, shown.system, shown.tools, digest, stamped=op.stamped)
    return Inputs(states[0], parts, read.order, shown.system, shown.tools, digest, read.unanswered, states, op.stamped)


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


def _outcome(op: Op) -> Outcome:
    """A tool's outcome: how it ended is told by its own span, what came of it by whoever read it."""
    own = op.outcome
    if not op.read:
        return own
    parts = {
        part.digest: part
        for reader, part in op.read
        if not part.missing and reader.inputs is not None and reader.inputs.state is _WHOLE
    }
    if not parts:
        return own
    mine = own.parts[0].digest if len(own.parts) else None
    part = parts[mine] if mine in parts else parts[min(parts)]
    readers = tuple(sorted({reader.key for reader, one in op.read if one.digest == part.digest}))
    made = part_list((part._replace(position=0, tool=None),))
    if own.ending is Ending.UNKNOWN:
        return Outcome(Ending.VALUE, _WHOLE, made, digest=output_digest(made), witnesses=readers)
    witnesses = (*own.witnesses, *readers)
    if own.ending is Ending.VALUE:
        return own._replace(parts=made, digest=output_digest(made), witnesses=witnesses)
    return own._replace(parts=made, witnesses=witnesses)
