# SPDX-License-Identifier: Apache-2.0
"""Recompute, inject or refuse: one pure function over a frozen node.

The first row that fits decides. A node that may be run but is not recomputed lists every reason that keeps it from it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from genai_processor.replay.decisions import Choice, Decision, Declared, Mode, Reason
from genai_processor.replay.reasons import remedy_of
from genai_processor.replay.records import Ending, Node, Operation, OrderEvidence, State

_INFERENCE, _TOOL = Operation.INFERENCE, Operation.TOOL
_WHOLE, _UNKNOWN = State.WHOLE, Ending.UNKNOWN

_INPUT_REASONS: dict[State, Reason] = {
    State.UNREADABLE: Reason.UNREADABLE,
    State.CUT: Reason.INPUT_CUT,
    State.REDACTED: Reason.INPUT_REDACTED,
    State.WITHHELD: Reason.INPUT_WITHHELD,
    State.HELD_BY_PROVIDER: Reason.INPUT_HELD_BY_PROVIDER,
    State.DELTA: Reason.INPUT_DELTA,
    State.COMPACTED: Reason.INPUT_COMPACTED,
    State.CHANGED: Reason.INPUT_CHANGED,
}
_SAMPLED, _EFFECT_NOT_DECLARED, _EXTERNAL = (Reason.SAMPLED,), (Reason.EFFECT_NOT_DECLARED,), (Reason.EXTERNAL,)
_MODES: dict[tuple[bool, bool], tuple[Mode, ...]] = {
    (True, True): (Mode.OUTPUT, Mode.INPUTS),
    (True, False): (Mode.OUTPUT,),
    (False, True): (Mode.INPUTS,),
    (False, False): (),
}
"""By whether an outcome is recorded, and whether the node may be run on what is recorded of its input."""
_ARGUMENT_REASONS: dict[State, Reason] = {State.CUT: Reason.ARGUMENTS_CUT, State.REDACTED: Reason.ARGUMENTS_REDACTED}
_OUTCOME_REASONS: dict[State, Reason] = {State.CUT: Reason.OUTCOME_CUT, State.REDACTED: Reason.OUTCOME_REDACTED}


def decide(node: Node, declared: Declared) -> Decision:
    """What is done with a node.

    Args:
        node: The node, with all that is known of it.
        declared: What the user says of tools and models.

    Returns:
        The decision, without what only its surroundings tell (`edges`, `covered_by`, `unverified_upstream`).
    """
    may_run = _may_run(node, declared)
    refusals = _refusals_of(node, may_run=may_run)
    recorded = _is_recorded(node)
    if refusals:
        return _decision(node, Choice.REFUSE, refusals, (Mode.OUTPUT,) if recorded else (), False)
    undeclared = _undeclared(node, declared)
    hanging = _hanging(node, recorded)
    modes = _MODES[recorded, may_run and (node.operation is not _INFERENCE or node.inputs.state is _WHOLE)]
    if undeclared or hanging:
        return _decision(node, Choice.INJECT, undeclared + hanging, modes, not hanging)
    structure = node.structure
    chain = structure.extends is not None or structure.producers
    reason = Reason.SINGLE_CHAIN if chain else Reason.CONSTANT_INPUTS
    return _decision(node, Choice.RECOMPUTE, (reason,), modes, True)


def _decision(node: Node, choice: Choice, reasons: tuple[Reason, ...], modes: tuple[Mode, ...], allows: bool) -> Decision:
    return Decision(choice, reasons, modes, remedy_of(reasons, node.operation), node.inputs.order, allows)


def _is_recorded(node: Node) -> bool:
    """Whether the record holds an outcome that can stand for the node: a value, a failure, a pause, or a wait."""
    return node.outcome.ending is not _UNKNOWN and node.outcome.state is _WHOLE


def is_verifiable(node: Node) -> bool:
    """Whether a stamp says what went in, so that it can be compared, though not all of it is recorded."""
    return node.inputs.order is OrderEvidence.STAMP and node.inputs.digest != b""


def _refusals_of(node: Node, *, may_run: bool) -> tuple[Reason, ...]:
    """Why a node is refused: the reasons of the first row that has any, or none.

    Args:
        node: The node.
        may_run: It may be run, so that its outcome need not be recorded.
    """
    structure, inputs = node.structure, node.inputs
    broken = []
    if structure.cycle:
        broken.append(Reason.CYCLE)
    if structure.conflicting:
        broken.append(Reason.CONFLICTING_COPIES)
    has_list = node.operation is _INFERENCE or node.operation is Operation.RERANKING
    if is_verifiable(node) and _is_recorded(node):
        has_list = False
    if inputs.state is State.UNREADABLE and has_list:
        broken.append(Reason.UNREADABLE)
    if broken:
        return tuple(broken)
    if has_list:
        bad = [_INPUT_REASONS[state] for state in inputs.states if state in _INPUT_REASONS]
        if bad:
            return tuple(dict.fromkeys(bad))
        if inputs.state is not _WHOLE or inputs.order is OrderEvidence.NOT_RECORDED:
            several = len(structure.producers) + structure.unobserved > 1
            return (Reason.ORDER_NOT_RECORDED,) if several else (Reason.INPUT_NOT_RECORDED,)
    elif node.operation is _TOOL:
        if inputs.state is not _WHOLE:
            return (_ARGUMENT_REASONS.get(inputs.state, Reason.ARGUMENTS_WITHHELD),)
        if structure.call_ambiguous:
            return (Reason.CALL_AMBIGUOUS,)
    if not may_run and not _is_recorded(node):
        return (_OUTCOME_REASONS.get(node.outcome.state, Reason.OUTCOME_NOT_RECORDED),)
    return ()


def _may_run(node: Node, declared: Declared) -> bool:
    """Whether the node may be run at all, on what is recorded: a model always, everything else if it is declared."""
    if node.operation is _INFERENCE:
        return True
    return _is_deterministic(node, declared) and node.inputs.state is _WHOLE


def _is_deterministic(node: Node, declared: Declared) -> bool:
    if not declared.deterministic or node.operation is Operation.HANDOFF:
        return False
    names = (node.tool,) if node.operation is _TOOL else (node.operation.value, node.name, node.tool, node.model)
    return any(name is not None and fnmatchcase(name, glob) for name in names for glob in declared.deterministic)


def _undeclared(node: Node, declared: Declared) -> tuple[Reason, ...]:
    if node.operation is _INFERENCE:
        given = bool(declared.recompute) and any(name in declared.recompute for name in (node.name, _INFERENCE.value, "*"))
        known = node.model is not None and any(fnmatchcase(node.model, glob) for glob in declared.models)
        return () if given or known else _SAMPLED
    if _is_deterministic(node, declared):
        return ()
    return _EFFECT_NOT_DECLARED if node.operation is _TOOL else _EXTERNAL


def _hanging(node: Node, recorded: bool) -> tuple[Reason, ...]:
    """What keeps even a declared node from being recomputed."""
    structure = node.structure
    found = []
    if structure.fan_in:
        found.append(Reason.FAN_IN)
    if structure.unobserved:
        found.append(Reason.SOURCE_UNOBSERVED)
    if structure.ambiguous:
        found.append(Reason.SOURCE_AMBIGUOUS)
    if not recorded:
        changed = node.outcome.state is State.CHANGED
        found.append(Reason.OUTCOME_CHANGED if changed else Reason.OUTPUT_NOT_RECORDED)
    if node.inputs.state is not _WHOLE:
        known = _INPUT_REASONS if node.operation is _INFERENCE else {}
        found.append(known.get(node.inputs.state, Reason.INPUT_NOT_RECORDED))
    return tuple(found)
