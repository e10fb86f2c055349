# SPDX-License-Identifier: Apache-2.0
"""What a dialect is: the keys and marks by which one instrumentation says what the conventions say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from genai_processor.spans.records import NotStarted, Operation, Span, View
from genai_processor.spans.runtimes import NO_ROW, Runtime
from genai_processor.spans.values import is_mapping, quick_loads, says_failed


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One instrumentation's way of writing spans. Every field but `name` may be left out.

    Keys are tried in order; after a dialect's own keys come those of the conventions and of OpenInference, which rewrites
    other instrumentations' spans.

    Attributes:
        name: A name for tables and messages.
        scopes: Instrumentation scope names; a trailing `*` matches any ending.
        marks: Attribute keys that betray the dialect where the scope does not.
        runtime: What the agent runtime behind it rejects before it calls.
        operation: Tells the operation where attributes do not say it in a common way; None to go on looking.
        view: Tells from where a tool span shows its call.
        tool_names: Keys of the tool's name.
        tool_name: Takes the tool's name from the span where no key has it, or mends the recorded one.
        call_ids: Keys of the call id.
        call_id: Finds the call id where no key has it.
        unnamed: Tells that a tool span was written without a call id, so that none can have been lost; None: it never is.
        arguments: Keys of the arguments.
        decode_arguments: Unwraps what an `arguments` key holds: `(span, key, value) -> (arguments, rendered)`.
        find_arguments: Finds the arguments where no key has them.
        results: Keys of the result.
        outputs: Keys of what the model said; a trailing "." asks for flattened attributes.
        inputs: Keys of what the model read.
        steps: Keys under which a step (graph node, workflow task) records the one call that it runs.
        definitions: Keys of the tools on offer.
        schemas: Keys, on a tool span, of the tool's own JSON schema.
        conversations: Keys of the conversation, most specific first.
        has_end_mark: Whether the mark of a normal end is there: `(span, call_id, arguments, result)`; None: no mark.
        end_mark_needs: A missing mark counts only where some span of the trace has one of these keys: it is content, and
            content capture may be off.
        ends_inside_parent: A call that came back ends before its parent does. False where each span has a clock of its own.
        failures: Further marks of a failure on a tool span: `(span, result)`, as evidence strings.
        paused: A further mark of a suspended call.
        not_started: The framework's own proof that the body never began.
        empty_is_withheld: `{}` stands for arguments that were not recorded.
        framework_tools: Tools that the framework itself provides, whose repetition is no repeated effect.
    """

    name: str
    scopes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    runtime: Runtime = NO_ROW
    operation: Callable[[Span], Operation | None] | None = None
    view: Callable[[Span], View] | None = None
    tool_names: tuple[str, ...] = ()
    tool_name: Callable[[Span, str | None], str | None] | None = None
    call_ids: tuple[str, ...] = ()
    call_id: Callable[[Span], str | None] | None = None
    unnamed: Callable[[Span], bool] | None = None
    arguments: tuple[str, ...] = ()
    decode_arguments: Callable[[Span, str, Any], tuple[Any, bool]] | None = None
    find_arguments: Callable[[Span], Any] | None = None
    results: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    conversations: tuple[str, ...] = ()
    has_end_mark: Callable[[Span, str | None, Any, Any], bool] | None = None
    end_mark_needs: tuple[str, ...] = ()
    ends_inside_parent: bool = True
    failures: Callable[[Span, Any], Iterable[str]] | None = None
    paused: Callable[[Span], str | None] | None = None
    not_started: Callable[[Span], NotStarted | None] | None = None
    empty_is_withheld: bool = False
    framework_tools: frozenset[str] = frozenset()


def never_named(span: Span) -> bool:
    """An instrumentation that writes no call id on any tool span, as far as was recorded."""
    return True


def result_if_arguments(span: Span, call_id: str | None, arguments: Any, result: Any) -> bool:
    """An instrumentation that recorded the arguments also records the result of a call that came back."""
    return result is not None or arguments is None


def status_ok(span: Span, call_id: str | None, arguments: Any, result: Any) -> bool:
    """An instrumentation that sets OK on every call that came back."""
    return span.status == 1


def rendered_unless_json(span: Span, key: str, value: Any) -> tuple[Any, bool]:
    """`input.value` is the arguments only where its MIME type says JSON (docs/verdict.md)."""
    return value, key == "input.value" and span.attributes.get("input.mime_type") != "application/json"


def after(prefix: str, suffix: str = "") -> Callable[[Span, str | None], str | None]:
    """A `tool_name` that takes the name from the span's name, between a prefix and a suffix."""

    def from_span_name(span: Span, recorded: str | None) -> str | None:
        name = span.name
        if recorded is None and name.startswith(prefix) and name.endswith(suffix):
            return name[len(prefix) : len(name) - len(suffix)].strip() or None
        return recorded

    return from_span_name


def may_look_failed(result: Any) -> bool:
    """Whether `looks_failed` can have an answer for a recorded result. Cheap, because for nearly all it has none."""
    if isinstance(result, str):
        return result[:1] in _STRUCTURES and "rror" in result
    return is_mapping(result)


_STRUCTURES = frozenset({"{", "["})


def looks_failed(result: Any) -> str | None:
    """The failure that a recorded result carries in its own structure, or None: `isError`, `status: error`."""
    if not may_look_failed(result):
        return None
    if isinstance(result, str):
        parsed = quick_loads(result)
        if parsed is None and says_failed(result):
            return "result says is_error"
        result = parsed
    for node in _layers(result):
        if node.get("isError") is True or node.get("is_error") is True:
            return "result says is_error"
        if node.get("status") == "error" and ("tool_call_id" in node or "toolUseId" in node):
            return "result says status=error"
    return None


def _layers(result: Any) -> Iterable[Mapping[str, Any]]:
    """The few places of a result in which frameworks keep such a flag (never deep inside the tool's own data)."""
    if isinstance(result, list) and len(result) == 1:
        result = result[0]
    if not isinstance(result, Mapping):
        return
    yield result
    for key in ("output", "kwargs", "data", "tool_output", "toolResult", "result"):
        inner = result.get(key)
        if isinstance(inner, Mapping):
            yield inner
            for deeper in ("kwargs", "data"):
                if isinstance(inner.get(deeper), Mapping):
                    yield inner[deeper]
