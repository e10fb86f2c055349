# SPDX-License-Identifier: Apache-2.0
"""When a claim is refused: pure functions over the entries that bear on it.

A store finds those entries, asks `decide`, and writes what it says, all in one atomic operation. Which entries bear on
a claim: of its scope, all with its call id; with its tool and digest, those of its turn, and of any turn all but those that
are `completed` or `not_started`, which may be very many; of its tool those that are open
(`genai_processor.ledger.entries.OPEN`) and whose digest is not known, or all that are open if the claim's is not, for
what they did may be this very action; and the claims that enclose it, which are the same call seen from outside and do
not stand in its way while they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from genai_processor.ledger.entries import IDEMPOTENT, READ_ONLY, Entry, Resolution, State
from genai_processor.ledger.requests import Claim, Refusal, RefusalReason
from genai_processor.spans.values import index_like

_UNSEEN: Final = frozenset({State.RETURNED, State.UNDELIVERED})
"""It ended well, and no model is known to have seen the result."""


@dataclass(frozen=True, slots=True)
class Permission:
    """The claim may be granted, and how.

    Attributes:
        again: Grant one more attempt on this entry: it was paused, or its tool is idempotent under this call id.
        releases: Grant a new entry, which uses up the release of this settled one.
    """

    again: Entry | None = None
    releases: Entry | None = None


def decide(claim: Claim, entries: Iterable[Entry], *, unknown: bool = False) -> Permission | Refusal:
    """Answer a claim.

    Args:
        claim: What somebody wants to run.
        entries: The entries that bear on it (see the module), in any order; others do no harm.
        unknown: The ledger had to forget something that bears on the claim.

    Returns:
        A permission, or a refusal with the entry that stands in the way.
    """
    if claim.effect == READ_ONLY:
        return Permission()
    found = {e.entry_id: e for e in entries}
    if not found:  # as for nearly all
        return Refusal(RefusalReason.LEDGER_UNKNOWN, None) if unknown else Permission()
    enclosing = _enclosing(claim, found)
    related = sorted(
        (
            e
            for e in found.values()
            if e.scope == claim.scope and e.state is not State.NOT_STARTED and e.entry_id not in enclosing
        ),
        key=lambda e: (e.created_ns, e.entry_id),
    )
    same_call = [e for e in related if _is_same_call(claim, e)]
    if claim.effect == IDEMPOTENT and (live := [e for e in same_call if e.state is not State.SETTLED]):
        return Permission(again=live[-1])

    others = [e for e in related if e not in same_call]
    refusal = (
        _repeated(claim, same_call)
        or _uncertain_sibling(claim, others)
        or _other_turn(claim, others)
        or (Refusal(RefusalReason.LEDGER_UNKNOWN, None) if unknown else None)
    )
    if refusal is not None:
        return refusal
    if (paused := _paused(claim, related)) is not None:
        return Permission(again=paused)
    released = [e for e in same_call if e.releases] or [e for e in others if e.releases and _is_same_action(claim, e)]
    return _turn_exceeded(claim, related) or Permission(releases=released[0] if released else None)


def _enclosing(claim: Claim, found: Mapping[str, Entry]) -> set[str]:
    enclosing: set[str] = set()
    outer = claim.parent
    while outer is not None and outer not in enclosing:
        enclosing.add(outer)
        outer = found[outer].parent if outer in found else None
    return {outer for outer in enclosing if outer not in found or not _is_over(claim, found[outer])}


def _is_over(claim: Claim, outer: Entry) -> bool:
    """Whether a call has ended, or was lost: what is claimed inside it after that is a call of its own.

    A task that its body has left behind, say, goes on in its name. Of one that is quarantined for what was called inside
    it, only its process knows whether it still runs.
    """
    if outer.state is State.CLAIMED:
        return False
    given_up = outer.state is State.QUARANTINED and not outer.child_uncertain
    return given_up or outer.entry_id not in claim.running


def _repeated(claim: Claim, same_call: list[Entry]) -> Refusal | None:
    """One call id, one attempt, unless it only paused or a person released it."""
    for entry in reversed(same_call):
        if entry.state is State.PAUSED or entry.releases:
            continue
        delivered_here = (
            entry.state is State.COMPLETED
            and _is_same_turn(claim, entry)
            and claim.digest is not None
            and entry.digest == claim.digest
        )
        hand_back = delivered_here or entry.state in _UNSEEN
        return Refusal(RefusalReason.CALL_REPEATED, entry, hand_back=hand_back)
    return None


def _uncertain_sibling(claim: Claim, others: list[Entry]) -> Refusal | None:
    """A second execution inside one call, after a first that may have committed: a session that sends again, say."""
    if claim.parent is None:
        return None
    for entry in reversed(others):
        if (
            entry.parent == claim.parent
            and entry.state is State.QUARANTINED
            and _may_be_same_action(claim, entry)
            and not _is_same_turn(claim, entry)
        ):
            return Refusal(RefusalReason.NESTED_UNCERTAIN, entry)
    return None


def _other_turn(claim: Claim, others: list[Entry]) -> Refusal | None:
    """The same action, from another turn, not known to be over.

    Without a turn, one that runs beside the claimant may be a twin. Any other has died, or could not tell how it ended.
    """
    for entry in reversed(others):
        if _is_same_turn(claim, entry):
            continue
        if entry.state is State.QUARANTINED and _may_be_same_action(claim, entry):
            return Refusal(RefusalReason.ACTION_QUARANTINED, entry)
        if entry.state in _UNSEEN and _may_be_same_action(claim, entry):
            return Refusal(RefusalReason.ACTION_UNDELIVERED, entry, hand_back=_is_same_action(claim, entry))
        if entry.resolution is Resolution.COMMITTED and _is_same_action(claim, entry):
            return Refusal(RefusalReason.ACTION_COMMITTED, entry)
        if entry.state is State.CLAIMED and _may_be_same_action(claim, entry):
            turns_known = claim.turn is not None and entry.turn is not None
            released = entry.released_by is not None  # which is for one attempt, never for twins
            if turns_known or released or entry.entry_id not in claim.running:
                return Refusal(RefusalReason.ACTION_IN_FLIGHT, entry)
    return None


def _turn_exceeded(claim: Claim, related: list[Entry]) -> Refusal | None:
    """Twins that a turn proposed on purpose may all run, and no more than these."""
    ran = [
        e
        for e in related
        if _is_same_turn(claim, e) and not e.releases and (_is_same_action(claim, e) or _may_have_been_it(claim, e))
    ]
    return Refusal(RefusalReason.TURN_EXCEEDED, ran[-1]) if len(ran) >= max(1, claim.proposed) else None


def _paused(claim: Claim, related: list[Entry]) -> Entry | None:
    """The paused call that this claim resumes: by its id, or by all that it has where the id tells nothing."""
    for entry in reversed(related):
        if entry.state is not State.PAUSED or entry.tool != claim.tool:
            continue
        if entry.call_id == claim.call_id and (
            _is_own_id(claim, entry) or (entry.turn == claim.turn and _is_same_action(claim, entry))
        ):
            return entry
    return None


def _is_own_id(claim: Claim, entry: Entry) -> bool:
    """Whether the two bear one id that means one call: an id like ``call_0`` does so within its turn only."""
    return (
        claim.call_id is not None
        and entry.call_id == claim.call_id
        and (_is_same_turn(claim, entry) or not index_like(claim.call_id, claim.tool))
    )


def _is_same_call(claim: Claim, entry: Entry) -> bool:
    """Whether the two are one call. An id that is bound to two tools or argument sets counts as missing."""
    return (
        _is_own_id(claim, entry)
        and entry.tool == claim.tool
        and (claim.digest is None or entry.digest is None or entry.digest == claim.digest)
    )


def _is_same_turn(claim: Claim, entry: Entry) -> bool:
    return claim.turn is not None and entry.turn == claim.turn


def _is_same_action(claim: Claim, entry: Entry) -> bool:
    return entry.tool == claim.tool and claim.digest is not None and entry.digest == claim.digest


def _may_have_been_it(claim: Claim, entry: Entry) -> bool:
    """Whether an execution of the same turn may have been this very call, of whose arguments or id nothing is known."""
    uncertain = entry.state is State.QUARANTINED or (entry.state is State.CLAIMED and entry.entry_id not in claim.running)
    told_apart = claim.call_id is not None and entry.call_id is not None
    return uncertain and not told_apart and _may_be_same_action(claim, entry)


def _may_be_same_action(claim: Claim, entry: Entry) -> bool:
    """Whether nobody can rule out that the two are one action: arguments unknown on either side count as equal."""
    return entry.tool == claim.tool and (claim.digest is None or entry.digest is None or entry.digest == claim.digest)
