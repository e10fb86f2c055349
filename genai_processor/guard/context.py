# SPDX-License-Identifier: Apache-2.0
"""What a tool's body asks of the guard that let it run."""

from __future__ import annotations

from genai_processor.guard.bindings import current


def idempotency_key() -> str | None:
    """Return the key to send to a provider, so that it recognises a repetition of what this call does.

    It is the key of the *intent*: every attempt at the same thing has it, whatever its call id, until one succeeds, a person
    says that it was committed, or a model asks for the same once more. Each of two identical calls of one turn has its own.

    Returns:
        A random text of 32 characters; None outside of a guarded call, for a read-only tool, and where the ledger could not
        be asked: then send none.
    """
    bound = current()
    return None if bound is None else bound.key


def not_executed() -> None:
    """Say, inside a tool, that it is about to fail without having done anything: the call may be made again.

    Nothing happens outside of a guarded call. A tool that has called other guarded tools is not believed. It is said of the
    whole call: a tool that goes on to try again by itself must not say it.
    """
    bound = current()
    if bound is not None:
        bound.rejected = True
