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
    if bound is None:
        return None
    bound.acts()
    return bound.key


def not_executed() -> None:
    """Say, inside a tool, that it is about to fail, and that this call has done nothing: it may be made again.

    It is said of the whole call, from the first line of the body to whatever ends it: nothing was sent before, and nothing
    is sent after. A tool that tries again by itself says it only if no attempt has sent anything. It holds until the body
    shows that it goes on: by asking for its `idempotency_key`, by calling another guarded tool, or where a framework runs it
    once more. A tool that has called a guarded tool which may have an effect is not believed. It changes nothing if the body
    returns, and nothing outside of a guarded call.
    """
    bound = current()
    if bound is not None:
        bound.rejected = True
