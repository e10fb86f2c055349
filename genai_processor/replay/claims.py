# SPDX-License-Identifier: Apache-2.0
"""Which proposal a tool span without a call id shows: by tool and arguments, else by tool alone where there is one of each.

Never by order or time. Where several fit, equal outcomes are interchangeable; else what the next prompt read tells them
apart; else they cannot be told apart, and say so.
"""

from __future__ import annotations

from genai_processor.replay.lookup import Op, proposed_before
from genai_processor.replay.records import Part, PartKind, State
from genai_processor.spans.values import usable_id

_CALL, _RESULT = PartKind.CALL, PartKind.RESULT

Offer = tuple[Op, int, Part]


def assign_ids(calls: list[Op], inferences: list[Op]) -> None:
    """Join tool nodes that have no call id with the proposals that they can only be.

    Args:
        calls: The tool nodes of a world, by key.
        inferences: Its inferences, by key.
    """
    nameless: dict[int, list[Op]] = {}
    named: set[tuple[int, str, bytes | None]] = set()
    for op in calls:
        if op.call_id is None:
            nameless.setdefault(id(op.draft.scope), []).append(op)
        else:
            known = op.inputs is not None and len(op.inputs.parts) > 0
            named.add((id(op.draft.scope), op.call_id, op.inputs.parts[0].digest if known and op.inputs else None))
    if not nameless:
        return
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
        if len(mine) == 1 and len(theirs) == 1:
            _join(mine[0], theirs[0], taken)
        elif theirs and _told_apart_by_result(mine, theirs, results, taken):
            continue


def _match(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> None:
    """Join executions with proposals of one tool and one argument set."""
    if len(offers) > 1 and len({part.call_id for _, _, part in offers}) == 1:  # a model that said its call again
        offers = [(op, at, part) for op, at, part in offers if not proposed_before(op, part)] or offers
    if len(offers) == 1:
        for op in ops:  # several executions of one call are its attempts
            _join(op, offers[0], taken)
        return
    outcomes = {_outcome(op) for op in ops}
    alike = len(outcomes) == 1
    if not alike and all(op.outcome.state is not State.WHOLE for op in ops):
        read = [results.of(offer) for offer in offers]  # no span says what came back, but it was the same for all
        alike = len(read[0]) == 1 and all(one == read[0] for one in read)
    if len(ops) == len(offers) and alike:
        ordered = sorted(offers, key=lambda offer: (offer[0].key, offer[1]))
        for op, offer in zip(sorted(ops, key=lambda op: op.key), ordered, strict=True):
            _join(op, offer, taken)
        return
    if not _told_apart_by_result(ops, offers, results, taken):
        for op in ops:
            if op.proposer is None:
                op.call_ambiguous = True


def _told_apart_by_result(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> bool:
    """Join each execution with the proposal whose result was read to be its own, if that is one pair for every one."""
    pairs: list[tuple[Op, Offer]] = []
    silent: list[Op] = []
    for op in ops:
        mine = [offer for offer in offers if len(op.outcome.parts) and op.outcome.parts[0].digest in results.of(offer)]
        if len(mine) == 1:
            pairs.append((op, mine[0]))
        elif mine:
            return False
        else:
            silent.append(op)
    if silent:
        left = [offer for offer in offers if not any(offer is other for _, other in pairs)]
        if len(silent) > 1 or len(left) != 1:
            return False
        pairs.append((silent[0], left[0]))  # all others are told apart, so this is what is left
    if len({(id(offer[0]), offer[1]) for _, offer in pairs}) != len(pairs):
        return False
    for op, offer in pairs:
        _join(op, offer, taken)
    return True


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
