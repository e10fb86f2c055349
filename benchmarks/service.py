# SPDX-License-Identifier: Apache-2.0
"""Traces as a service exports them: an agent with content on, a handful of turns, and the spans of what its tools call.

Made up, unlike those of `benchmarks.scan`: conversations of some KB, as they are in production, and one failed call in 25.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

_SYSTEM = "You are the assistant of a shop. " + "Follow the policy on refunds to the letter. " * 40
_TOOLS = ("get_order", "create_refund", "send_mail", "get_rate", "update_ticket")
_DEFINITIONS = json.dumps(
    [
        {
            "type": "function",
            "name": name,
            "description": "Does what its name says, for one order of the shop. " * 4,
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}, "amount_cents": {"type": "integer"}},
                "required": ["order_id"],
            },
        }
        for name in _TOOLS
    ]
)
_FAILED = 0.04
_RUNS_A_LINE = 10
_SEED = 11  # so that every file is the same
_EPOCH = 1_700_000_000_000_000_000
_INTERNAL, _SERVER, _CLIENT = 1, 2, 3
_STACK = '  File "/srv/app/tools.py", line 81, in create_refund\n    response.raise_for_status()\n' * 12


class _Run:
    """The spans of one run of the agent, each begun after its parent and ended before it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._trace_id = f"{chance.getrandbits(128) | 1:032x}"
        self._now = _EPOCH + chance.getrandbits(50)
        self._conversation = f"conversation-{chance.getrandbits(64):016x}"
        self.spans: list[tuple[str, dict[str, Any]]] = []
        with self._span("asgi", "POST /chat", _SERVER, None, {"http.request.method": "POST", "url.path": "/chat"}) as server:
            agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": self._conversation}
            with self._span("agents", "invoke_agent shop", _INTERNAL, server, agent) as parent:
                self._converse(parent)

    def _converse(self, agent: str) -> None:
        history = [_message("system", _text(_SYSTEM)), _message("user", _text("My order is broken. " * 20))]
        for _ in range(self._chance.randint(2, 6)):
            given = {"order_id": f"o-{self._chance.randrange(10**6)}", "amount_cents": self._chance.randrange(10**5)}
            call = {"type": "tool_call", "id": f"call_{self._chance.getrandbits(96):024x}", "arguments": given}
            call["name"] = self._chance.choice(_TOOLS)
            self._infer(agent, history, _message("assistant", call))
            response = self._execute(agent, call)
            history.append(_message("assistant", call))
            history.append(_message("tool", {"type": "tool_call_response", "id": call["id"], "response": response}))
        self._infer(agent, history, _message("assistant", _text("It is done. " * 30)))

    def _infer(self, agent: str, history: list[dict[str, Any]], answer: dict[str, Any]) -> None:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.conversation.id": self._conversation,
            "gen_ai.input.messages": json.dumps(history),
            "gen_ai.output.messages": json.dumps([answer]),
            "gen_ai.tool.definitions": _DEFINITIONS,
            "gen_ai.usage.input_tokens": 1_000 + self._chance.randrange(1_000),
            "gen_ai.usage.output_tokens": 40,
        }
        with self._span("agents", "chat m", _CLIENT, agent, attributes):
            pass

    def _execute(self, agent: str, call: dict[str, Any]) -> str:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call["name"],
            "gen_ai.tool.call.id": call["id"],
            "gen_ai.conversation.id": self._conversation,
            "gen_ai.tool.call.arguments": json.dumps(call["arguments"]),
        }
        failed = self._chance.random() < _FAILED
        result = json.dumps({"order": call["arguments"], "lines": [{"sku": f"sku-{n}", "quantity": n} for n in range(12)]})
        more: dict[str, Any] = {}
        if failed:
            exception = {
                "exception.type": "httpx.HTTPStatusError",
                "exception.message": "502",
                "exception.stacktrace": _STACK,
            }
            attributes["error.type"] = "HTTPStatusError"
            more = {"status": {"code": 2}, "events": [{"name": "exception", "attributes": _pairs(exception)}]}
        else:
            attributes["gen_ai.tool.call.result"] = result
        with self._span("agents", f"execute_tool {call['name']}", _INTERNAL, agent, attributes, **more) as tool:
            for query in ("SELECT * FROM orders WHERE id = $1", "SELECT * FROM payments WHERE order_id = $1"):
                database = {"db.system.name": "postgresql", "db.query.text": query}
                with self._span("db", "SELECT", _CLIENT, tool, database):
                    pass
        return "the tool failed" if failed else result

    @contextlib.contextmanager
    def _span(
        self, scope: str, name: str, kind: int, parent: str | None, attributes: dict[str, Any], **more: Any
    ) -> Iterator[str]:
        span_id, start = f"{self._chance.getrandbits(64) | 1:016x}", self._tick()
        yield span_id
        span = {"traceId": self._trace_id, "spanId": span_id, **({"parentSpanId": parent} if parent else {}), "name": name}
        span |= {"kind": kind, "startTimeUnixNano": str(start), "endTimeUnixNano": str(self._tick())}
        self.spans.append((scope, span | {"attributes": _pairs(attributes), "status": {}} | more))

    def _tick(self) -> int:
        self._now += 1_000_000 + self._chance.randrange(1_000_000)
        return self._now


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _message(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]


def lines(size: int) -> Iterator[bytes]:
    """OTLP/JSON lines, each with a batch of spans of several runs, until they are `size` bytes."""
    chance = random.Random(_SEED)
    resource = {"attributes": _pairs({"service.name": "shop"})}
    written = 0
    while written < size:
        scopes: dict[str, list[dict[str, Any]]] = {}
        for _ in range(_RUNS_A_LINE):
            for scope, span in _Run(chance).spans:
                scopes.setdefault(scope, []).append(span)
        batches = [{"scope": {"name": scope}, "spans": spans} for scope, spans in scopes.items()]
        line = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": batches}]}, separators=(",", ":"))
        written += len(line) + 1
        yield line.encode() + b"\n"
