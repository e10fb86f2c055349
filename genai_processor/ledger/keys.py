# SPDX-License-Identifier: Apache-2.0
"""By what a provider recognises the attempts of one intent."""

from __future__ import annotations

from genai_processor.ledger.entries import Entry


def idempotency_key_of(entry: Entry) -> str:
    """Return the idempotency key of an entry: the same for every attempt at its intent, different for every other intent.

    It is what a tool's body sends to its provider, and what a reconciler asks the provider by, so it never changes.
    """
    return entry.intent
