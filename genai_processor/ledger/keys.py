# SPDX-License-Identifier: Apache-2.0
"""By what a provider recognises the attempts of one intent."""

from __future__ import annotations

import hashlib
import json

from genai_processor.ledger.entries import Entry
from genai_processor.ledger.requests import Claim
from genai_processor.spans.values import index_like


def idempotency_key_of(entry: Entry) -> str:
    """Return the idempotency key of an entry: the same for every attempt at its intent, different for every other intent.

    It is what a tool's body sends to its provider, and what a reconciler asks the provider by, so it never changes.
    """
    return entry.intent


def intent_of(claim: Claim) -> str | None:
    """Return the intent of an idempotent tool's call, or None if its id does not tell.

    It is made of what makes two claims one call, so that the call has the same key even where the ledger has forgotten its
    first attempt. An id that merely counts means one call within its turn only: where no turn is known, it means none.
    """
    counts = claim.call_id is not None and index_like(claim.call_id, claim.tool)
    if claim.call_id is None or (counts and claim.turn is None):
        return None
    key = json.dumps([claim.scope, claim.tool, claim.call_id, claim.turn if counts else None, claim.digest])
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
