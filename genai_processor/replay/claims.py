# SPDX-License-Identifier: Apache-2.0
"""Which proposal a tool span without a call id shows: by tool and arguments, else by tool alone where there is one of each.

Never by order or time. Where several fit, equal outcomes are interchangeable; else what the next prompt read tells them
apart; else they cannot be told apart, and say so.

What is lost excludes nobody, so that the less is recorded, the more may fit, and with more than one nothing is joined:

1. An id that a span may have lost could have been anybody's. Such a span is joined by its arguments only, it needs arguments
   and an outcome of its own, and its source stays in doubt: the call that it was may be in the record or not. Where an
   instrumentation writes no ids (`Shown.unnamed`), none was lost.
2. A call that was read, and that no response in the record proposed, may be what ran, whatever is lost of its arguments.
3. A tool's name alone joins with the one proposal that the name has, or that alone can have been read to come to the same.
   That another execution has been joined with a proposal does not leave the next one over.
4. An execution that lost its tool's name cannot be told from any call.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from genai_processor.replay.known import Known, arguments_digest
from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import Part, PartKind
from genai_processor.replay.records import Ending, State
from genai_processor.spans.values import usable_id

_CALL, _RESULT = PartKind.CALL, PartKind.RESULT

Offer = tuple[Op, int, Part]
"""A call, and where in whose output; at -1, if it was only read and nobody in the record proposed it."""


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
    named: set[tuple[int, str | None, bytes | None]] = {
        (id(op.draft.scope), op.call_id, arguments_digest(op)) for op in calls if op.call_id is not None
    }
    offers: dict[int, list[Offer]] = {}
    for op in inferences:
        scope = id(op.draft.scope)
        if scope in nameless:
            if op.outcome.state is not State.WHOLE:
                del nameless[scope]  # nobody knows what it proposed
                continue
            said = [(op, at, part) for at, part in enumerate(op.outcome.parts) if part.kind is _CALL]
            offers.setdefault(scope, []).extend(said)
    results = _Results(inferences)
    unsaid = _unsaid(inferences, nameless, offers)
    for scope, ops in nameless.items():
        mine = [offer for offer in offers.get(scope, ()) if not _is_run(offer[2], scope, named)]
        others = [offer for offer in unsaid.get(scope, ()) if not _is_run(offer[2], scope, named)]
        if mine or others:
            _assign(ops, [*_without_repeats(mine, known, results.said_again), *others], results)


def _is_run(call: Part, scope: int, named: set[tuple[int, str | None, bytes | None]]) -> bool:
    """Whether an execution has a call's id, and no other arguments."""
    return call.call_id is not None and ((scope, call.call_id, None) in named or (scope, call.call_id, call.digest) in named)


def _unsaid(inferences: list[Op], scopes: Iterable[int], offers: Mapping[int, list[Offer]]) -> dict[int, list[Offer]]:
    """The calls of each scope that were read there, and that no recorded response proposed."""
    said = {(scope, part.call_id, part.digest) for scope in scopes for _, _, part in offers.get(scope, ())}
    found: dict[int, list[Offer]] = {}
    for op in inferences:
        scope = id(op.draft.scope)
        if scope in scopes and op.inputs is not None:
            for part in op.inputs.parts.since(op.begins):
                if part.kind is _CALL and (scope, part.call_id, part.digest) not in said:
                    said.add((scope, part.call_id, part.digest))
                    found.setdefault(scope, []).append((op, -1, part))
    return found


def _without_repeats(offers: list[Offer], known: Known, said_again: set[tuple[int, int]]) -> list[Offer]:
    """The proposals without those that only say one of the others again.

    A proposal that its inference has read of already, and that nobody here has said before, joins nothing; nor do two of one
    id that say the same. They stay among the others all the same (and in `said_again`): an execution may be theirs.
    """
    repeats = {(id(op), at) for op, at, part in offers if known.only_repeats(op, part)}
    said: dict[tuple[str | None, bytes], set[int]] = {}
    for op, at, part in offers:
        if (id(op), at) not in repeats:
            said.setdefault((part.call_id, part.digest), set()).add(id(op))
    twice = {key for key, sayers in said.items() if len(sayers) > 1 and key[0] is not None}
    if not repeats and not twice:
        return offers
    said_again |= repeats
    said_again |= {(id(op), at) for op, at, part in offers if (part.call_id, part.digest) in twice}
    return [
        (op, at, part) for op, at, part in offers if (id(op), at) not in repeats or (part.call_id, part.digest) not in said
    ]


class _Results:
    """What was read for each call id, by scope; and which proposals were only said again."""

    def __init__(self, inferences: list[Op]) -> None:
        self.said_again: set[tuple[int, int]] = set()
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

    def may_be(self, offer: Offer, op: Op) -> bool:
        """Whether an execution may have come to what was read for a call, as far as both are recorded."""
        read, own = self.of(offer), op.outcome.parts
        return not read or not len(own) or own[0].digest in read

    def any_again(self, offers: list[Offer]) -> bool:
        """Whether one of some proposals was only said again."""
        return any((id(op), at) in self.said_again for op, at, _ in offers)


def _assign(ops: list[Op], offers: list[Offer], results: _Results) -> None:
    by_digest: dict[bytes, tuple[list[Op], list[Offer]]] = {}
    for op in ops:
        if op.tool is None:
            op.call_ambiguous = True
        elif op.inputs is not None and len(op.inputs.parts):
            by_digest.setdefault(op.inputs.parts[0].digest, ([], []))[0].append(op)
    for offer in offers:
        if not offer[2].missing and offer[2].digest in by_digest:
            by_digest[offer[2].digest][1].append(offer)
    taken: set[tuple[int, int]] = set()
    for mine, theirs in by_digest.values():
        if theirs:
            _match(mine, theirs, results, taken)
    unknown = {part.tool for _, _, part in offers if part.missing or part.tool is None}
    for op in ops:
        op.ambiguous += op.proposer is not None and not unknown.isdisjoint((None, op.tool))
    left: dict[str, list[Op]] = {}
    for op in ops:
        if op.proposer is None and not op.call_ambiguous and op.tool is not None:
            left.setdefault(op.tool, []).append(op)
    for tool, mine in left.items():
        _match_by_name(mine, [offer for offer in offers if offer[2].tool in (None, tool)], results, taken)


def _match(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> None:
    """Join executions with proposals of one tool and one argument set; those that cannot be told apart say so."""
    if len(offers) == 1:
        for op in ops:  # several executions of one call are its attempts, or one of them is another call's
            _join(op, offers[0], results, taken)
            op.ambiguous += len(ops) > 1
        return
    if len(ops) == len(offers) and _alike(ops) and not results.any_again(offers):
        _join_all(ops, offers, results, taken)
        return
    rest, left = _join_read(ops, offers, results, taken)
    if rest and len(rest) == len(left) and (len(rest) == 1 or _alike(rest)) and not results.any_again(left):
        _join_all(rest, left, results, taken)
        return
    for op in rest:
        op.call_ambiguous = True


def _match_by_name(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> None:
    """Join executions with proposals of one tool where arguments tell nothing: the only one, or the only one read so."""
    if len(offers) == 1:
        fitting = [(op, offers[0]) for op in ops]
    elif len({part.digest for _, _, part in offers if not part.missing}) == len(offers):
        fitting = []
        for op in ops:
            mine = [offer for offer in offers if results.may_be(offer, op)]
            if len(mine) == 1 and len(op.outcome.parts):
                fitting.append((op, mine[0]))
    else:
        return  # with its arguments an execution might be one that cannot be told from another
    claims = collections.Counter([(id(offer[0]), offer[1]) for _, offer in fitting])
    for op, offer in fitting:
        at = (id(offer[0]), offer[1])
        if claims[at] == 1 and at not in taken and not _may_have_lost_id(op):
            _join(op, offer, results, taken)
            op.ambiguous += op.proposer is not None  # a name and a value are no proof: another execution may be missing


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
            _join(*pairs[0], results, taken)
    rest = [op for op in ops if op.proposer is None]
    return rest, [offer for offer in offers if (id(offer[0]), offer[1]) not in taken]


def _join_all(ops: list[Op], offers: list[Offer], results: _Results, taken: set[tuple[int, int]]) -> None:
    ordered = sorted(offers, key=lambda offer: (offer[0].key, offer[1]))
    for op, offer in zip(sorted(ops, key=lambda op: op.key), ordered, strict=True):
        _join(op, offer, results, taken)


def _outcome(op: Op) -> tuple[object, ...]:
    outcome = op.outcome
    if outcome.state is not State.WHOLE:
        return (outcome.ending, id(op))
    return (outcome.ending, outcome.digest)


def _join(op: Op, offer: Offer, results: _Results, taken: set[tuple[int, int]]) -> None:
    producer, at, part = offer
    if at < 0 or (id(producer), at) in results.said_again:
        return
    if _may_have_lost_id(op):
        if not _stands_by_itself(op):
            return
        op.ambiguous += 1
    op.proposer = (producer, at)
    op.call_id = usable_id(part.call_id, part.tool)
    taken.add((id(producer), at))


def _may_have_lost_id(op: Op) -> bool:
    """Whether one of an execution's spans is of those that have an id when they are whole."""
    draft = op.draft
    return not draft.shown.unnamed or not all(witness.unnamed for witness in draft.witnesses)


def _stands_by_itself(op: Op) -> bool:
    """Whether its own spans say what an execution was called with, and what it came to."""
    outcome = op.outcome
    told = op.inputs is not None and op.inputs.state is State.WHOLE
    return told and outcome.ending is not Ending.UNKNOWN and outcome.state is State.WHOLE
