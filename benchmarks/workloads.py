# SPDX-License-Identifier: Apache-2.0
"""The spans that are timed: start and end through the SDK, as instrumentations make them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

_number = itertools.count()


def arguments(size: int) -> str:
    """A JSON object of about that many bytes, plain ASCII, with numbers and text."""
    number = next(_number)
    head = f'{{"order_id":"o-{number}","amount_cents":{500 + number % 97},"lines":['
    line = '{"sku":"sku-0001","quantity":3,"price":19.9,"text":"a line of an order"},'
    return head + (line * max(0, (size - len(head)) // len(line))).rstrip(",") + "]}"


def plain(tracer: Tracer) -> None:
    """A root span that is none of ours."""
    with tracer.start_as_current_span("GET /orders", kind=SpanKind.SERVER, attributes=_HTTP):
        pass


def tree(tracer: Tracer) -> None:
    """Seven spans that are none of ours, three deep."""
    with tracer.start_as_current_span("GET /orders", kind=SpanKind.SERVER, attributes=_HTTP):
        for _ in range(2):
            with tracer.start_as_current_span("load"):
                with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT, attributes=_DB):
                    pass
                with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT, attributes=_DB):
                    pass


_HTTP = {"http.request.method": "GET", "url.path": "/orders", "http.response.status_code": 200, "server.port": 80}
_DB = {"db.system.name": "postgresql", "db.query.text": "SELECT * FROM orders WHERE id = $1"}


def inference(size: int) -> Callable[[Tracer], None]:
    """An inference span with messages of about that many bytes."""
    messages = '[{"role":"user","parts":[{"type":"text","content":"' + "x" * size + '"}]}]'

    def run(tracer: Tracer) -> None:
        with tracer.start_as_current_span("chat m", kind=SpanKind.CLIENT, attributes=_CHAT) as span:
            span.set_attribute("gen_ai.input.messages", messages)
            span.set_attribute("gen_ai.output.messages", _ANSWER)
            span.set_attribute("gen_ai.usage.input_tokens", 512)

    return run


_CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m"}
_ANSWER = '[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]'


def history(turns: int, size: int) -> Callable[[Tracer], None]:
    """The inference spans of one run, whose history grows by a call and its result of about that many bytes in each turn."""
    texts: list[tuple[str, str]] = []
    read = ['{"role":"user","parts":[{"type":"text","content":"' + "x" * size + '"}]}']
    for turn in range(turns):
        call = f'"id":"call_{turn:024d}","name":"search"'
        said = '{"role":"assistant","parts":[{"type":"tool_call",' + call + ',"arguments":{"q":' + str(turn) + "}}]}"
        texts.append((f"[{','.join(read)}]", f"[{said}]"))
        answer = f'"type":"tool_call_response",{call},"response":"{turn} {"r" * size}"'
        read += [said, '{"role":"tool","parts":[{' + answer + "}]}"]

    def run(tracer: Tracer) -> None:
        with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
            for messages, answer in texts:
                with tracer.start_as_current_span("chat m", kind=SpanKind.CLIENT, attributes=_CHAT) as span:
                    span.set_attribute("gen_ai.input.messages", messages)
                    span.set_attribute("gen_ai.output.messages", answer)

    return run


def tool(size: int, *, scope: str | None = None) -> Callable[[Tracer], None]:
    """A completed tool call. Without a scope each is the first of its tool in its conversation."""

    def run(tracer: Tracer) -> None:
        number = next(_number)
        given = {**_TOOL, "gen_ai.tool.call.id": f"call_{number:024d}", "gen_ai.tool.call.arguments": arguments(size)}
        given["gen_ai.conversation.id"] = scope or f"conversation-{number}"
        with tracer.start_as_current_span("execute_tool create_refund", attributes=given) as span:
            span.set_attribute("gen_ai.tool.call.result", "refunded")

    return run


def failed(size: int, *, raising: bool) -> Callable[[Tracer], None]:
    """A failed tool call: it raises and the SDK records the exception, or an instrumentation only sets the status."""

    def run(tracer: Tracer) -> None:
        number = next(_number)
        given = {**_TOOL, "gen_ai.tool.call.id": f"call_{number:024d}", "gen_ai.tool.call.arguments": arguments(size)}
        given["gen_ai.conversation.id"] = f"conversation-{number}"
        if not raising:
            with tracer.start_as_current_span("execute_tool create_refund", attributes=given) as span:
                span.set_attribute("error.type", "HTTPStatusError")
                span.set_status(Status(StatusCode.ERROR, "502 Bad Gateway"))
            return
        try:
            with tracer.start_as_current_span("execute_tool create_refund", attributes=given):
                raise RuntimeError("502 Bad Gateway")
        except RuntimeError:
            pass

    return run


_TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "create_refund", "gen_ai.tool.type": "function"}


class Case(NamedTuple):
    """One thing to time.

    Attributes:
        title: For the table.
        run: Makes one span (or one tree of them).
        limit: What the ratio should stay under, or None.
        extra_ms: What the difference in milliseconds should stay under, or None.
        inside: Whether an agent's span is open around it.
        recorded: Also time it with `GENAI_PROCESSOR_RECORD_FOR_REPLAY`.
    """

    title: str
    run: Callable[[Tracer], None]
    limit: float | None = None
    extra_ms: float | None = None
    inside: bool = False
    recorded: bool = False


CASES: dict[str, Case] = {
    "plain": Case("no tool call, root", plain, 1.10),
    "tree": Case("no tool call, tree of seven", tree, 1.10),
    "inference_1k": Case("inference, 1 KB of messages", inference(1_000), 1.10, inside=True, recorded=True),
    "inference_200k": Case("inference, 200 KB of messages", inference(200_000), 1.10, inside=True, recorded=True),
    "history_50": Case("a run of 50 inferences, 500 B a turn", history(50, 500), 1.10, recorded=True),
    "tool_200": Case("completed call, first of its tool, 200 B", tool(200), 1.6, inside=True),
    "tool_20k": Case("completed call, first of its tool, 20 KB", tool(20_000), 1.6, inside=True),
    "later_200": Case("completed call, later in its scope, 200 B", tool(200, scope="one"), inside=True),
    "later_20k": Case("completed call, later in its scope, 20 KB", tool(20_000, scope="one"), extra_ms=0.6, inside=True),
    "failed_200": Case("failed call, raised, 200 B", failed(200, raising=True), 4, inside=True),
    "failed_20k": Case("failed call, raised, 20 KB", failed(20_000, raising=True), extra_ms=0.6, inside=True),
    "marked_200": Case("failed call, status only, 200 B", failed(200, raising=False), 4, inside=True),
}
