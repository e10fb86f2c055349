# SPDX-License-Identifier: Apache-2.0
"""What the spans of retrievals, rerankings and embeddings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from genai_processor.replay.digests import part_digest
from genai_processor.replay.failures import error_of, failed, is_cancelled, types_of
from genai_processor.replay.lists import ListReader, ReadList
from genai_processor.replay.parts import EMPTY, Part, PartKind, Role, part_list
from genai_processor.replay.read_calls import NO_OUTCOME
from genai_processor.replay.records import Ending, Operation, OrderEvidence, Outcome, State
from genai_processor.replay.sources import in_order_or_none
from genai_processor.spans.messages import nested
from genai_processor.spans.records import Span
from genai_processor.spans.values import has_marker, is_mapping, is_withheld, quick_loads

_TEXT, _DOCUMENT = PartKind.TEXT, PartKind.DOCUMENT
_DOCUMENTS = {
    Operation.RETRIEVAL: ("retrieval.documents.", ("gen_ai.retrieval.documents",)),
    Operation.RERANKING: ("reranker.output_documents.", ("gen_ai.rerank.results",)),
}


class _Ranked(NamedTuple):
    """Documents in their recorded order."""

    state: State
    parts: list[Part]
    order: OrderEvidence


def documents_of(
    lists: ListReader, span: Span, key: str, operation: Operation, *, keep: bool
) -> tuple[ReadList, Outcome, tuple[tuple[bytes, int], ...]]:
    """What went in, what came out, and the digests of messages' parts that say a document, each with its rank.

    Args:
        lists: Reads lists.
        span: The span.
        key: Its key.
        operation: What it did.
        keep: Keep what parts say.
    """
    attributes = span.attributes
    names = "\n".join(attributes)
    query = _query(attributes)
    inputs: list[Part] = []
    state = State.WHOLE
    order = OrderEvidence.NO_LIST
    if query is not None:
        inputs.append(_part(Role.USER, _TEXT, query))
        state = _state_of(lists, query)
    if operation is Operation.RERANKING:
        found = _documents(lists, attributes, names, "reranker.input_documents.", ("gen_ai.rerank.documents",))
        if found is None:
            state, order = State.NOT_RECORDED, OrderEvidence.NOT_RECORDED
        else:
            inputs.extend(found.parts)
            order = found.order
            state = found.state if state is State.WHOLE else state
    if operation is Operation.EMBEDDINGS and not inputs:
        inputs = [_part(Role.USER, _TEXT, value) for value in _folded_values(attributes, names, "text")]
    if not inputs:
        state = State.NOT_RECORDED
    keys = _DOCUMENTS.get(operation)
    documents = _documents(lists, attributes, names, *keys) if keys is not None else _vectors(attributes, names)
    if documents is None and "output.value" in attributes:
        documents = _plain_output(lists, attributes["output.value"])
    outcome = _outcome(span, key, documents, keep)
    read = _as_read(documents.parts) if documents is not None else ()
    return ReadList(state, part_list(_kept(inputs, keep)), order), outcome, read


def _kept(parts: list[Part], keep: bool) -> list[Part]:
    return parts if keep else [part._replace(value=None) for part in parts]


def _outcome(span: Span, key: str, documents: _Ranked | None, keep: bool) -> Outcome:
    if documents is not None:
        parts = part_list(_kept(documents.parts, keep))
        if documents.state is not State.WHOLE:
            return Outcome(Ending.UNKNOWN, documents.state, parts)
        return Outcome(Ending.VALUE, State.WHOLE, parts, witnesses=(key,))
    error = error_of(span, types_of(span))
    if error is not None:
        return failed(Ending.WAITS if is_cancelled(error[0]) else Ending.FAILURE, EMPTY, error[0], error[1], (key,))
    return Outcome(Ending.UNKNOWN, State.CUT, EMPTY) if span.dropped_attributes else NO_OUTCOME


def _part(role: Role, kind: PartKind, value: Any) -> Part:
    return Part(role, kind, None, part_digest(role, kind, None, value), value=value)


def _state_of(lists: ListReader, value: Any) -> State:
    if isinstance(value, str):
        if is_withheld(value) or has_marker(value):
            return State.REDACTED
        if lists.is_cut(value):
            return State.CUT
    return State.WHOLE


def _documents(
    lists: ListReader, attributes: Mapping[str, Any], names: str, prefix: str, keys: tuple[str, ...]
) -> _Ranked | None:
    """Ranked documents: one JSON array, or indexed attributes without a gap."""
    values: list[Any] | None = None
    order = OrderEvidence.ARRAY
    for key in keys:
        recorded = attributes.get(key)
        if isinstance(recorded, str):
            if is_withheld(recorded) or has_marker(recorded):
                return _Ranked(State.REDACTED, [], OrderEvidence.NOT_RECORDED)
            parsed = quick_loads(recorded)
            if not isinstance(parsed, list):
                cut = lists.is_cut(recorded) or parsed is None
                return _Ranked(State.CUT if cut else State.UNREADABLE, [], OrderEvidence.NOT_RECORDED)
            values = parsed
        elif isinstance(recorded, (list, tuple)):
            values = [quick_loads(item) if isinstance(item, str) and item[:1] == "{" else item for item in recorded]
    if values is None:
        folded = nested(attributes, prefix[:-1]) if prefix in names else None
        if not folded:
            return None
        values = in_order_or_none(folded)
        order = OrderEvidence.INDEXED
        if values is None:
            return _Ranked(State.CUT, [], OrderEvidence.NOT_RECORDED)
    parts: list[Part] = []
    state = State.WHOLE
    for value in values:
        content = _content_of(value)
        if content is None:
            state = State.WITHHELD
            parts.append(Part(Role.TOOL, _DOCUMENT, None, part_digest(Role.TOOL, _DOCUMENT, None, value), missing=True))
            continue
        if state is State.WHOLE:
            state = _state_of(lists, content)
        digest = part_digest(Role.TOOL, _DOCUMENT, None, content)
        parts.append(Part(Role.TOOL, _DOCUMENT, None, digest, value=content))
    return _Ranked(state, parts, order)


def _vectors(attributes: Mapping[str, Any], names: str) -> _Ranked | None:
    values = _folded_values(attributes, names, "vector")
    if not values:
        return None
    parts = [_part(Role.TOOL, PartKind.OTHER, list(value) if isinstance(value, tuple) else value) for value in values]
    return _Ranked(State.WHOLE, parts, OrderEvidence.INDEXED)


def _plain_output(lists: ListReader, value: Any) -> _Ranked | None:
    if not isinstance(value, str):
        return None
    state = _state_of(lists, value)
    parts = [_part(Role.TOOL, PartKind.OTHER, value)] if state is State.WHOLE else []
    return _Ranked(state, parts, OrderEvidence.NO_LIST)


def _as_read(documents: list[Part]) -> tuple[tuple[bytes, int], ...]:
    """The digests that messages' parts have which say a retrieval's documents."""
    return tuple(
        [
            (part_digest(role, _TEXT, None, part.value), rank)
            for rank, part in enumerate(documents)
            if isinstance(part.value, str) and part.value
            for role in (Role.USER, Role.SYSTEM)
        ]
    )


def _query(attributes: Mapping[str, Any]) -> Any:
    keys = ("gen_ai.retrieval.query.text", "gen_ai.retrieval.query", "reranker.query", "gen_ai.rerank.query", "input.value")
    return next((value for key in keys if (value := attributes.get(key)) is not None), None)


def _content_of(value: Any) -> Any:
    """A document's content, without its score and its id: those belong to the index."""
    if not is_mapping(value):
        return value
    inner = value.get("document")
    if is_mapping(inner):
        value = inner
    for key in ("content", "text", "page_content", "document.content"):
        if value.get(key) is not None:
            return value[key]
    return value.get("id", value.get("document_id"))


def _folded_values(attributes: Mapping[str, Any], names: str, leaf: str) -> list[Any]:
    folded = nested(attributes, "embedding.embeddings") if "embedding.embeddings." in names else None
    values = in_order_or_none(folded) if folded else None
    found = []
    for value in values or ():
        inner = value.get("embedding", value) if is_mapping(value) else None
        if is_mapping(inner) and inner.get(leaf) is not None:
            found.append(inner[leaf])
    return found
