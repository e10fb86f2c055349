# SPDX-License-Identifier: Apache-2.0
"""Reconcilers: functions that ask a provider whether a quarantined call landed, so that no person has to.

``reconcile(ledger, {"refund": ask})`` asks about every call of `refund` that waits, and settles what is proven. Register a
reconciler only for a tool whose body sends its idempotency key: of any other tool the provider knows no key, and would
seem to say that nothing landed.
"""

from __future__ import annotations

from genai_processor.reconcile.records import Answer, Asked, NotAsked, Outcome, Question, Report
from genai_processor.reconcile.run import Memory, reconcile

__all__ = ["Answer", "Asked", "Memory", "NotAsked", "Outcome", "Question", "Report", "reconcile"]
