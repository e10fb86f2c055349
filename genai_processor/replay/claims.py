# SPDX-License-Identifier: Apache-2.0
"""Which proposal a tool span without a call id shows: by tool and arguments, else by tool alone where there is one of each.

Never by order or time. Where several fit, equal outcomes are interchangeable; else what the next prompt read tells them
apart; else they cannot be told apart, and say so.
"""

from __future__ import annotations

from genai_processor.replay.known import Known, arguments_digest
from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import Part, PartKind
from genai_processor.replay.records import State
from genai_processor.spans.values import usable_id

_CALL, _RESULT = PartKind.CALL, PartKind.RESULT

Offer = tuple[Op, int, Part]


def assign_ids(calls: list[Op], inferences: list[Op], known: Known) -> None:
    """Join tool nodes that have no call id with the proposals that they can only be.

    Args:
        calls: The tool nodes of a world, by key.
        inferences: Its inferences, by key.
        known: What they said.
    """
    nameless: dict[int, list[Op]] = {}
    for op in calls:
        if op.call_id is None:
            nameless.setdefault(id(op.draft.scope), []).append(op)
    if not nameless:
        return
    named = {(id(op.draft.scope), op.call_id, arguments_digest(op)) for op in calls if op.call_id is not None}
    offers: dict[int, list[Offer]] = {}
    for op in inferences:
        scope = id(op.draft.scope)
        if scope in nameless:
            for at, part in enumerate(op.outcome.parts):
                if part.kind is not _CALL:
                    continue
                if part.call_id is not None and not named.isdisjoint(
                    {(scope, part.call_id, None), (scope, part.call_id, part.digest)}
                ):
                    continue
                if not known.only_repeats(op, part):
                    offers.setdefault(scope, []).append((op, at, part))
    results = _Results(inferences)
    for scope, ops in nameless.items():
        mine = offers.get(scope)
        if mine:
            _assign(ops, mine, results)


class _Results:
    """What was read for each call id, by scope."""

    def __init__(self, inferences: list[Op]) -> None:
        self._inferences = inferences
        self._found: dict[tuple[int, str], set[bytes]] | None = None

    def of(self, offer: Offer) -> set[bytes]:
        if self._found is None:
            self._found = {}
            for op in self._inferences:
                if op.inputs is not None:
                    for part in op.inputs.parts.since(op.begins):
                        if part.kind is _RESULT and part.call_id is not None and not part.missing:
                            self._found.setdefault((id(op.draft.scope), part.call_id), set()).add(part.digest)
        op, _, part = offer
        return self._found.get((id(op.draft.scope), part.call_id), set()) if part.call_id is not None else set()


def _assign(ops: list[Op], offers: list[Offer], results: _Results) -> None:
    by_digest: dict[bytes, tuple[list[Op], list[Offer]]] = {}
    for op in ops:
        if op.inputs is not None and len(op.inputs.parts):
            by_digest.setdefault(op.inputs.parts[0].digest, ([], []))[0].append(op)
    for offer in offers:
        if not offer[2].missing and offer[2].digest in by_digest:
            by_digest[offer[2].digest][1].append(offer)
    taken: set[tuple[int, int]] = set()
    for mine, theirs in by_digest.values():
        if theirs:
            _match(mine, theirs, results, taken)
    left: dict[str, tuple[list[Op], list[Offer]]] = {}
    for op in ops:
        if op.proposer is None and not op.call_ambiguous and op.tool is not None:
            left.setdefault(op.tool, ([], []))[0].append(op)
    for offer in offers:
        tool = offer[2].tool
        if tool in left and (id(offer[0]), offer[1]) not in taken:
            left[tool][1].append(offer)
    for mine, theirs in left.values():
        _match_by_name(mine, theirs, results, taken)


def _match(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> None:
    """Join executions with proposals of one tool and one argument set; those that cannot be told apart say so."""
    if len(offers) == 1:
        for op in ops:  # several executions of one call are its attempts
            _join(op, offers[0], taken)
        return
    if len(ops) == len(offers) and _alike(ops):
        _join_all(ops, offers, taken)
        return
    rest, left = _join_read(ops, offers, results, taken)
    if rest and len(rest) == len(left) and (len(rest) == 1 or _alike(rest)):
        _join_all(rest, left, taken)
        return
    for op in rest:
        op.call_ambiguous = True


def _match_by_name(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> None:
    """Join executions with proposals of one tool where arguments tell nothing: by what was read, and the last one left."""
    rest, left = _join_read(ops, offers, results, taken)
    if len(rest) == 1 and len(left) == 1:
        read = results.of(left[0])
        own = rest[0].outcome.parts
        if not (read and len(own) and own[0].digest not in read):
            _join(rest[0], left[0], taken)


def _alike(ops: list[Op]) -> bool:
    """Whether it makes no difference which execution is whose: all are known to have ended alike."""
    return len({_outcome(op) for op in ops}) == 1


def _join_read(
    ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]
) -> tuple[list[Op], list[Offer]]:
    """Join each execution with the proposal whose result was read to be its own, where it is the only one.

    Returns:
        The executions and proposals that are left.
    """
    claims: dict[tuple[int, int], list[tuple[Op, Offer]]] = {}
    for op in ops:
        mine = [offer for offer in offers if len(op.outcome.parts) and op.outcome.parts[0].digest in results.of(offer)]
        if len(mine) == 1:
            claims.setdefault((id(mine[0][0]), mine[0][1]), []).append((op, mine[0]))
    for pairs in claims.values():
        if len(pairs) == 1:
            _join(*pairs[0], taken)
    rest = [op for op in ops if op.proposer is None]
    return rest, [offer for offer in offers if (id(offer[0]), offer[1]) not in taken]


def _join_all(ops: list[Op], offers: list[Offer], taken: set[tuple[int, int]]) -> None:
    ordered = sorted(offers, key=lambda offer: (offer[0].key, offer[1]))
    for op, offer in zip(sorted(ops, key=lambda op: op.key), ordered, strict=True):
        _join(op, offer, taken)


def _outcome(op: Op) -> tuple[object, ...]:
    outcome = op.outcome
    if outcome.state is not State.WHOLE:
        return (outcome.ending, id(op))
    return (outcome.ending, outcome.digest)


def _join(op: Op, offer: Offer, taken: set[tuple[int, int]]) -> None:
    producer, at, part = offer
    op.proposer = (producer, at)
    op.call_id = usable_id(part.call_id, part.tool)
    taken.add((id(producer), at))
