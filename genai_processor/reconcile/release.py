# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of a release that a provider's answer would allow."""

from __future__ import annotations

from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.keys import idempotency_key_of
from genai_processor.ledger.protocol import Ledger
from genai_processor.reconcile.registered import Registered


def in_the_way(ledger: Ledger, entry: Entry, registered: Registered) -> str | None:
    """Say why `not_committed` must not release a new attempt of an entry; None if nothing stands in the way.

    The answer is about the key, and the key is that of the intent. So the entry has to be the only one that can still be
    an attempt at it: where calls are only observed, several may wait or run under one key. And it has to be known whose key
    was sent: of two calls inside each other that both have a reconciler, say a framework's tool and the MCP request in it,
    either may have done so.
    """
    if entry.digest is None:
        return "its arguments are not known, so nobody can tell which other calls are attempts at the same"
    if ledger.is_unknown(entry.scope, entry.tool):
        return "the ledger had to forget calls of its tool that were not settled"
    near = [*ledger.by_action(entry.scope, entry.tool, entry.digest), *ledger.by_action(entry.scope, entry.tool, None)]
    if entry.call_id is not None:
        near += ledger.by_call(entry.scope, entry.call_id)
    key = idempotency_key_of(entry)
    for other in near:
        if other.entry_id != entry.entry_id and idempotency_key_of(other) == key and not _is_over(other):
            return f"entry {other.entry_id} is another attempt under the same key"
    inner, around = entry, {entry.entry_id}
    while inner.parent is not None and inner.parent not in around:
        outer = ledger.get(inner.parent)
        if outer is None:
            return "the ledger has forgotten the call around it"
        if registered.of(outer.tool) is not None:
            return f"it is inside entry {outer.entry_id}, which has a reconciler, too: either may have sent its key"
        around.add(outer.entry_id)
        inner = outer
    return None


def _is_over(other: Entry) -> bool:
    """Whether it is known that an attempt did nothing and will do nothing."""
    return other.state is State.NOT_STARTED or (
        other.state is State.SETTLED and other.resolution is Resolution.NOT_COMMITTED
    )
