# SPDX-License-Identifier: Apache-2.0
"""From a span to what it says that a replay needs."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any

from genai_processor.replay.containers import CONTAINER_TEXTS
from genai_processor.replay.digests import content_digest
from genai_processor.replay.lists import ListReader, ReadList, once
from genai_processor.replay.read_calls import arguments_of, delegated_by, outcome_of
from genai_processor.replay.read_documents import documents_of
from genai_processor.replay.read_inferences import held_states, said_by
from genai_processor.replay.records import Operation, State
from genai_processor.replay.shown import Link, Shown, Stands
from genai_processor.replay.sources import best_source
from genai_processor.replay.stamp_reading import read_stamp
from genai_processor.replay.stamps import Stamp, StampedList, keyed
from genai_processor.spans import records
from genai_processor.spans.dialects import Dialect
from genai_processor.spans.read import CONVERSATION_KEYS, conversation_of, operation_of, read_tool
from genai_processor.spans.records import Span
from genai_processor.spans.said import named_call
from genai_processor.spans.values import text

_NODE, _AGENT, _STEP, _NOTHING = Stands.NODE, Stands.AGENT, Stands.STEP, Stands.NOTHING
_WHOLE = State.WHOLE
_TOOL, _INFERENCE = Operation.TOOL, Operation.INFERENCE
_new = tuple.__new__  # cheaper than the named tuple's own
_SPAN_TOOL, _SPAN_INFERENCE = records.Operation.TOOL, records.Operation.INFERENCE

_OPERATIONS: dict[str, Operation] = {
    "retrieval": Operation.RETRIEVAL,
    "rerank": Operation.RERANKING,
    "reranking": Operation.RERANKING,
    "embeddings": Operation.EMBEDDINGS,
    "handoff": Operation.HANDOFF,
}
_KINDS: dict[str, dict[str, Operation]] = {
    "gen_ai.operation.name": _OPERATIONS,
    "openinference.span.kind": {
        "RETRIEVER": Operation.RETRIEVAL,
        "RERANKER": Operation.RERANKING,
        "EMBEDDING": Operation.EMBEDDINGS,
    },
    "langsmith.span.kind": {"retriever": Operation.RETRIEVAL, "embedding": Operation.EMBEDDINGS},
}
_STANDS: dict[records.Operation, Stands] = {
    records.Operation.TOOL: _NODE,
    records.Operation.INFERENCE: _NODE,
    records.Operation.AGENT: _AGENT,
    records.Operation.STEP: _STEP,
}
_MODELS = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "embedding.model_name", "reranker.model_name")


_Where = tuple[str, str, str, str | None]
"""A span's key, trace id, span id and parent's id."""


class SpanReader:
    """Reads spans one by one.

    Args:
        keep_values: Keep what parts say, not only their digests.
        length_limit: The attribute value length limit of the SDK, 0 if it had none, None if nobody knows.
        key: What stamps are keyed with (`stamps.key_of`), or b"".
    """

    def __init__(self, *, keep_values: bool = True, length_limit: int | None = None, key: bytes = b"") -> None:
        self._key = key
        self._lists = ListReader(keep_values=keep_values, length_limit=length_limit)
        self._outputs = ListReader(keep_values=keep_values, length_limit=length_limit)
        self._keep = keep_values
        self._digests: dict[str, bytes] = {}
        self._last: dict[int, tuple[str, bytes]] = {}

    def read(self, span: Span) -> Shown:
        """What a span says."""
        # What many spans say is kept once.
        trace_id = intern(span.trace_id)
        parent_id = intern(span.parent_span_id) if span.parent_span_id is not None else None
        where = f"{trace_id}:{span.span_id}", trace_id, span.span_id, parent_id
        kind, dialect = operation_of(span)
        attributes = span.attributes
        if dialect is None:
            stands = _AGENT if kind is records.Operation.AGENT else _NOTHING
            name = span.name if stands is _AGENT else ""
            return Shown(*where, stands, name=name)
        if kind is _SPAN_TOOL:
            return self._tool(span, where, dialect)
        if kind is _SPAN_INFERENCE:
            if "_prepare_chat_with_tools" in span.name:  # LlamaIndex gets a model's input ready, and calls nobody
                return Shown(*where, _NOTHING)
            return self._inference(span, where, dialect)
        for name, table in _KINDS.items():
            value = attributes.get(name)
            if value is not None and value.__class__ is str and value in table:
                return self._other(span, where, dialect, table[value], value)
        stands = _STANDS.get(kind, _NOTHING)
        call_id = None
        if stands is _STEP and dialect.steps:
            named = named_call(span, dialect) if _may_name_call(attributes, dialect) else None
            call_id = named.call_id if named is not None else None
        texts = None
        if stands is _AGENT:
            texts = {key: attributes[key] for key in CONTAINER_TEXTS if key in attributes}
        return Shown(
            *where,
            stands,
            name=span.name,
            dialect=dialect.name,
            agent_name=_first(attributes, ("gen_ai.agent.name", "agent.name")) if stands is _AGENT else None,
            conversation=self._conversation(span, dialect),
            call_id=call_id,
            texts=texts,
            failed=stands is _STEP and span.status == records.StatusCode.ERROR,
        )

    def _conversation(self, span: Span, dialect: Dialect) -> str | None:
        return None if CONVERSATION_KEYS.isdisjoint(span.attributes) else conversation_of(span, dialect)

    # -- tools -----------------------------------------------------------------------------------------------------

    def _tool(self, span: Span, where: _Where, dialect: Dialect) -> Shown:
        call = read_tool(span, dialect)
        tool, call_id = once(call.tool), once(call.call_id)
        arguments, value = arguments_of(self._lists, call, tool, call_id, keep=self._keep)
        operation = _TOOL
        name = span.attributes.get("gen_ai.operation.name")
        if name is None and (span.name.startswith("handoff") or (call.tool or "").startswith("handoff to ")):
            operation = Operation.HANDOFF
        return _new(
            Shown,
            (
                *where,
                _NODE,
                operation,
                "execute_tool",
                dialect.name,
                tool,
                None,
                text(span.attributes.get("gen_ai.agent.name")),
                self._conversation(span, dialect),
                call_id,
                call.view,
                arguments,
                outcome_of(self._lists, call, where[0], keep=self._keep),
                b"",
                b"",
                (),
                _links(span) if span.links else (),
                None,
                delegated_by(value),
                b"",
                (),
                None,
                False,
                call_id is None and dialect.unnamed is not None and dialect.unnamed(span),
            ),
        )

    # -- inferences ------------------------------------------------------------------------------------------------

    def _inference(self, span: Span, where: _Where, dialect: Dialect) -> Shown:
        attributes = span.attributes
        inputs, source = best_source(self._lists, span, dialect.inputs, outputs=False)
        output, said_in = best_source(self._outputs, span, dialect.outputs, outputs=True)
        stamp = read_stamp(attributes, self._key)
        if stamp is not None:
            stamp = _compared(stamp, inputs, source, output, said_in)
        instructions = attributes.get("gen_ai.system_instructions")
        definitions = attributes.get("gen_ai.tool.definitions")
        name = attributes.get("gen_ai.operation.name")
        return _new(
            Shown,
            (
                *where,
                _NODE,
                _INFERENCE,
                name if isinstance(name, str) else "chat",
                dialect.name,
                None,
                _first(attributes, _MODELS),
                text(attributes.get("gen_ai.agent.name")),
                self._conversation(span, dialect),
                None,
                None,
                inputs,
                said_by(span, where[0], output),
                self._digest(instructions) if instructions is not None else b"",
                self._digest(definitions) if definitions is not None else b"",
                held_states(span, inputs),
                _links(span) if span.links else (),
                None,
                (),
                output.answer if output is not None and output.state is _WHOLE else b"",
                (),
                stamp,
                False,
                False,
            ),
        )

    def _digest(self, value: Any) -> bytes:
        """Of instructions or definitions, which spans repeat word for word."""
        if not isinstance(value, str):
            return content_digest(value)
        last = self._last.get(len(value))
        if last is not None and last[0] == value:  # to compare long texts is cheaper than to look them up
            return last[1]
        found = self._digests.get(value)
        if found is None:
            if len(self._digests) > 256:
                self._digests.clear()
                self._last.clear()
            found = self._digests[value] = content_digest(value)
        self._last[len(value)] = value, found
        return found

    # -- retrieval, reranking, embeddings --------------------------------------------------------------------------

    def _other(self, span: Span, where: _Where, dialect: Dialect, operation: Operation, name: str) -> Shown:
        attributes = span.attributes
        inputs, outcome, documents = documents_of(self._lists, span, where[0], operation, keep=self._keep)
        return Shown(
            *where,
            _NODE,
            operation,
            name if name in _OPERATIONS else operation.value,
            dialect.name,
            _first(attributes, ("gen_ai.data_source.id", "gen_ai.tool.name")),
            _first(attributes, _MODELS),
            text(attributes.get("gen_ai.agent.name")),
            self._conversation(span, dialect),
            None,
            None,
            inputs,
            outcome,
            links=_links(span),
            documents=documents,
        )


def _compared(stamp: Stamp, inputs: ReadList | None, source: str, output: ReadList | None, said_in: str) -> Stamp:
    """A stamp, with what it is compared with the lists of its span."""
    return stamp._replace(
        inputs=_found_again(stamp.inputs, inputs, source, stamp.key),
        output=_found_again(stamp.output, output, said_in, stamp.key),
    )


def _found_again(stamped: StampedList | None, read: ReadList | None, source: str, key: bytes) -> StampedList | None:
    if stamped is None or read is None or read.state is not _WHOLE or source != stamped.source:
        return stamped
    return stamped if keyed(read.parts.digest, key) == stamped.digest else stamped._replace(changed=True)


def _may_name_call(attributes: Mapping[str, Any], dialect: Dialect) -> bool:
    for key in dialect.steps:
        value = attributes.get(key)
        if isinstance(value, str) and ("tool_call" in value or "ToolCall(" in value or "tool_name" in value):
            return True
    return False


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = attributes.get(key)
        if type(value) is str and value:
            return intern(value)
    return None


_NOT_CONTENT = frozenset({"retry_of", "retry", "follows_from", "control", "scheduling", "parent"})
_LINK_TYPES = ("gen_ai.link.type", "genai.link.type", "link.type", "type", "relationship")


def _links(span: Span) -> tuple[Link, ...]:
    """Links that may carry content: all but those that say that they are of another kind."""
    found = set()
    for link in span.links:
        kinds = [str(link.attributes[key]).lower() for key in _LINK_TYPES if key in link.attributes]
        if not any(kind in _NOT_CONTENT for kind in kinds) and "genai.retry.of" not in link.attributes:
            found.add(Link(link.trace_id, link.span_id))
    return tuple(sorted(found))
