# SPDX-License-Identifier: Apache-2.0
"""What a `MemoryLedger` holds of a call that ended well and that one span has told of: next to nothing beyond it.

Nearly all calls are like that, and nobody ever looks at them, so their `Entry` is made when somebody does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from genai_processor.ledger.entries import Entry, State, new_entry
from genai_processor.ledger.requests import Returned, Sighting

Noted: TypeAlias = tuple[str, int, int, Sighting | Returned]
"""Id and time of an entry that one sighting made, its estimated size in bytes, and the sighting or what stands for it."""

Held: TypeAlias = Entry | Noted


def entry_of(held: Held) -> Entry:
    """Return the entry, which is the same whenever it is made."""
    if not isinstance(held, tuple):
        return held
    entry_id, now, _, seen = held
    scope, tool, state, call_id, digest, turn, _, effect, reason, started, trace_id, span_id = _sighting(seen)
    return new_entry(
        entry_id,
        scope,
        tool,
        state if type(state) is State else State(state),
        1,
        now,
        now,
        call_id or None,
        digest or None,
        turn or None,
        intent=entry_id,
        effect=effect,
        reason=reason,
        witnessed=1,
        started_ns=now if started else None,
        trace_id=trace_id,
        span_id=span_id,
    )


def call_of(held: Held) -> Entry | Sighting:
    """Return whatever names the call: its scope, tool, state, id, digest and turn, of which "" is as good as None."""
    return _sighting(held[3]) if isinstance(held, tuple) else held


def _sighting(seen: Sighting | Returned) -> Sighting:
    return seen if isinstance(seen, Sighting) else seen.sighting()


def keys_of(held: Held) -> tuple[str, str, State, str | None, str | None, str | None]:
    """Return scope, tool, state, call id, digest and turn, of which "" is as good as None."""
    if not isinstance(held, tuple):
        return held.scope, held.tool, held.state, held.call_id, held.digest, held.turn
    seen = held[3]
    if isinstance(seen, Sighting):
        return seen[:6]
    return seen.scope, seen.tool, State.COMPLETED, seen.call_id, None, None


def id_of(held: Held) -> str:
    """Return the entry's id."""
    return held[0] if isinstance(held, tuple) else held.entry_id


def created_ns(held: Held) -> int:
    """Return when the entry was made."""
    return held[1] if isinstance(held, tuple) else held.created_ns


def updated_ns(held: Held) -> int:
    """Return when the entry last changed."""
    return held[1] if isinstance(held, tuple) else held.updated_ns


def without_digest(everything: Iterable[Held], scope: str, tool: str) -> list[Entry]:
    """Return the entries of a tool whose arguments are not known, oldest first."""
    calls = ((held, call_of(held)) for held in everything)
    found = [held for held, call in calls if not call.digest and call.tool == tool and call.scope == scope]
    return [entry_of(held) for held in sorted(found, key=created_ns)]
