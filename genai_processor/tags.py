# SPDX-License-Identifier: Apache-2.0
"""What a judgement says on a span: the attributes of `genai_processor.attributes`, with values that every exporter takes."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any, Final

from genai_processor import attributes as names
from genai_processor.retry.verdict import Reason, RetryVerdict

if TYPE_CHECKING:
    from genai_processor.retry.judgement import Judgement

MAX_TEXT: Final = 256
"""How long a piece of evidence or a call id may be on a span. Evidence is cut; an id is left out: half is none."""

SUCCESS: Final = {
    names.GENAI_RETRY_VERDICT: RetryVerdict.NO_RETRY_NEEDED.value,
    names.GENAI_RETRY_REASON: Reason.SUCCEEDED.value,
}
"""All that is said of a call that came back and repeats no other."""

_SUCCEEDED: Final = Reason.SUCCEEDED


def tags_of(judgement: Judgement, entry_id: str | None) -> dict[str, Any]:
    """Return what to write on the span that a judgement is about.

    Args:
        judgement: What was found.
        entry_id: The call's entry in the ledger, if it is known.
    """
    verdict = judgement.verdict
    tags: dict[str, Any] = {
        names.GENAI_RETRY_VERDICT: verdict.verdict._value_,
        names.GENAI_RETRY_REASON: verdict.reason._value_,
        names.GENAI_RETRY_EFFECT: verdict.effect._value_,
    }
    if verdict.reason is not _SUCCEEDED:  # of a call that came back, nothing else was looked into
        tags[names.GENAI_RETRY_EXECUTION] = verdict.execution._value_
        tags[names.GENAI_RETRY_ARGUMENTS_STATE] = verdict.arguments_state._value_
        tags[names.GENAI_RETRY_CALL_ID_SOURCE] = verdict.call_id_source._value_
        if verdict.evidence:
            tags[names.GENAI_RETRY_EVIDENCE] = tuple([clean(piece) for piece in verdict.evidence])
        if not judgement.has_id and verdict.call_id is not None and clean(verdict.call_id) == verdict.call_id:
            tags[names.GENAI_RETRY_CALL_ID] = verdict.call_id
    if judgement.duplicate_of is not None:
        tags[names.GENAI_RETRY_DUPLICATE_OF] = judgement.duplicate_of
    if judgement.attempt is not None:
        tags[names.GENAI_RETRY_ATTEMPT] = judgement.attempt
    if entry_id is not None:
        tags[names.GENAI_RETRY_ENTRY_ID] = entry_id
    return tags


def keyed(digest: str, key: str | None) -> str:
    """Key a digest, so that arguments which are easy to guess cannot be found by trying.

    Args:
        digest: The digest, as text.
        key: The secret; None leaves the digest as it is.

    Returns:
        The digest, or its HMAC-SHA256 as hex.
    """
    if key is None:
        return digest
    return hmac.new(key.encode(errors="surrogateescape"), digest.encode(), hashlib.sha256).hexdigest()


def clean(text: str) -> str:
    """Cut a text, and replace what no exporter can encode: a lone surrogate loses it the whole batch."""
    if text.isascii() and len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
