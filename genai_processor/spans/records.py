# SPDX-License-Identifier: Apache-2.0
"""What one span says, whoever recorded it: the frozen records that everything else reasons over.

Nothing here knows a dialect, a file format or the SDK. Readers (`live`, `otlp`) make `Span`; `read` turns a `Span` into
a `ToolCall`, an `Inference` or neither.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from genai_processor.spans.dialects import Dialect


class SpanKind(enum.IntEnum):
    """OTLP's numbers of `SpanKind` (the SDK counts from zero instead)."""

    UNSPECIFIED = 0
    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class StatusCode(enum.IntEnum):
    """OTLP's status codes, which the SDK shares."""

    UNSET = 0
    OK = 1
    ERROR = 2


class Operation(enum.Enum):
    """What a span stands for, as far as a retry is concerned."""

    TOOL = "tool"
    """One execution of a tool, seen from wherever (framework, MCP client, MCP server)."""
    INFERENCE = "inference"
    """One response of a model: it proposes calls and reads results."""
    AGENT = "agent"
    """An agent or a workflow: what stands above turns."""
    STEP = "step"
    """A chain, graph node or task of a framework: no boundary, but it may name the call that it runs."""
    MCP = "mcp"
    """MCP traffic that is no tool call (`tools/list`, `initialize`, notifications)."""
    OTHER = "other"
    """Anything else."""


class View(enum.Enum):
    """From where a tool span shows its call."""

    FRAMEWORK = "framework"
    MCP_CLIENT = "mcp_client"
    MCP_SERVER = "mcp_server"


class Event(NamedTuple):
    """A span event. `attributes` maps attribute names to decoded values."""

    name: str
    attributes: Mapping[str, Any]


class Link(NamedTuple):
    """A span link, its ids in lower-case hex."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]


class Span(NamedTuple):
    """A span as it was recorded.

    Attributes:
        trace_id: 32 lower-case hex digits; "" where the span has no context.
        span_id: 16 lower-case hex digits; "" where the span has no context.
        parent_span_id: 16 lower-case hex digits, or None for a root.
        name: The span's name.
        kind: An OTLP `SpanKind` number.
        scope: Name of the instrumentation scope ("" if none).
        start_ns: Start in nanoseconds since the epoch, or None.
        end_ns: End in nanoseconds since the epoch, or None while no end is recorded.
        status: An OTLP status code.
        status_message: The status' description ("" if none).
        attributes: Attribute names to decoded values (str, bool, int, float, bytes, list, dict, None).
        events: Its events, in order.
        links: Its links, in order.
        dropped_attributes: How many attributes the SDK dropped.
        dropped_events: How many events the SDK dropped.
        resource: A token that is equal for two spans of one resource.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: int
    scope: str
    start_ns: int | None
    end_ns: int | None
    status: int = 0
    status_message: str = ""
    attributes: Mapping[str, Any] = {}
    events: Sequence[Event] = ()
    links: Sequence[Link] = ()
    dropped_attributes: int = 0
    dropped_events: int = 0
    resource: object = None


class NotStarted(NamedTuple):
    """A framework's own mark that a tool's body never began.

    Attributes:
        reason: A value of `genai.retry.reason`.
        evidence: The mark.
        if_nothing_below: It is sound only where nothing ran below, so only where everything below was seen.
    """

    reason: str
    evidence: str
    if_nothing_below: bool = False


class ToolCall(NamedTuple):
    """One view of a tool call: what a single span says of it, before anything is joined or judged.

    Attributes:
        span: The span.
        dialect: Whose span it is.
        view: From where it shows the call.
        tool: The tool's name as the model knows it, or None if the span does not say.
        raw_tool: The name as recorded, where it differs (`plugin-function`), else `tool`.
        call_id: The recorded call id if it is one, else None: blanks and placeholders are no ids.
        arguments: The recorded arguments (text or mapping), or None.
        arguments_rendered: The text is a rendering for people, not the arguments as sent: if it does not parse, that
            proves nothing.
        failure: Why the span itself counts as failed, as evidence strings; empty if nothing says so.
        error_types: Every error or exception type on the span, in order.
        paused: The control-flow type or mark that suspended the call, or None.
        not_started: The framework's own mark that the body never began, or None.
        ended: Whether the dialect's mark of a normal end is there; None where the dialect has none. False where the span
            lost events, of which one may have told of a failure.
    """

    span: Span
    dialect: Dialect
    view: View
    tool: str | None
    raw_tool: str | None
    call_id: str | None
    arguments: Any
    arguments_rendered: bool
    failure: tuple[str, ...]
    error_types: tuple[str, ...]
    paused: str | None
    not_started: NotStarted | None
    ended: bool | None


class Proposal(NamedTuple):
    """A call that a model proposed.

    Attributes:
        call_id: The id that the model gave it, or None.
        tool: The tool's name, or None.
        arguments: The proposed arguments (text or mapping), or None where they are withheld.
    """

    call_id: str | None
    tool: str | None
    arguments: Any


class Result(NamedTuple):
    """A tool's result as a model read it.

    Attributes:
        call_id: The id of the call that it answers, or None.
        failed: The message itself says that the call failed.
        value: The result as recorded, wrapped or not; None where it is withheld.
        tool: The tool's name, where the message has it.
    """

    call_id: str | None
    failed: bool
    value: Any = None
    tool: str | None = None


class Inference(NamedTuple):
    """One response of a model. Its messages stay as recorded until a verdict needs them.

    Attributes:
        span: The span.
        dialect: Whose span it is.
    """

    span: Span
    dialect: Dialect
