# SPDX-License-Identifier: Apache-2.0
"""Traces as a service exports them: an agent with content on, a handful of turns, and the spans of what its tools call.

Made up, unlike those of `benchmarks.scan`: conversations of some KB, as they are in production, and one failed call in 25.
"""

from __future__ import annotations

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
_STACK = '  File "/srv/app/tools.py", line 81, in create_refund\n    response.raise_for_status()\n' * 12


class _Run:
    """The spans of one run of the agent."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._trace_id = f"{chance.getrandbits(128) | 1:032x}"
        self._now = 1_700_000_000_000_000_000 + chance.getrandbits(50)
        self._conversation = f"conversation-{chance.getrandbits(64):016x}"
        self.spans: list[tuple[str, dict[str, Any]]] = []
        server = self._id()
        agent = self._id()
        history = [_message("system", _text(_SYSTEM)), _message("user", _text("My order is broken. " * 20))]
        for _ in range(chance.randint(2, 6)):
            self._turn(agent, history)
        self._add("agents", "invoke_agent shop", 1, agent, server, {"gen_ai.operation.name": "invoke_agent"})
        self._add("asgi", "POST /chat", 2, server, None, {"http.request.method": "POST", "url.path": "/chat"})

    def _id(self) -> str:
        return f"{self._chance.getrandbits(64) | 1:016x}"

    def _turn(self, agent: str, history: list[dict[str, Any]]) -> None:
        tool, call_id = self._chance.choice(_TOOLS), f"call_{self._chance.getrandbits(96):024x}"
        given = {"order_id": f"o-{self._chance.randrange(10**6)}", "amount_cents": self._chance.randrange(10**5)}
        call = {"type": "tool_call", "id": call_id, "name": tool, "arguments": given}
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.conversation.id": self._conversation,
            "gen_ai.input.messages": json.dumps(history),
            "gen_ai.output.messages": json.dumps([_message("assistant", call)]),
            "gen_ai.tool.definitions": _DEFINITIONS,
            "gen_ai.usage.input_tokens": 1_000 + self._chance.randrange(1_000),
            "gen_ai.usage.output_tokens": 40,
        }
        self._add("agents", "chat m", 3, self._id(), agent, chat)
        span = self._id()
        for query in ("SELECT * FROM orders WHERE id = $1", "SELECT * FROM payments WHERE order_id = $1"):
            self._add("db", "SELECT", 3, self._id(), span, {"db.system.name": "postgresql", "db.query.text": query})
        result = json.dumps({"order": given, "lines": [{"sku": f"sku-{n}", "quantity": n} for n in range(12)]})
        tagged = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.conversation.id": self._conversation,
            "gen_ai.tool.call.arguments": json.dumps(given),
        }
        if self._chance.random() < 0.04:
            failure = {"exception.type": "httpx.HTTPStatusError", "exception.message": "502", "exception.stacktrace": _STACK}
            more = {
                "status": {"code": 2, "message": "502"},
                "events": [{"name": "exception", "attributes": _pairs(failure)}],
            }
            self._add("agents", f"execute_tool {tool}", 1, span, agent, tagged | {"error.type": "HTTPStatusError"}, **more)
            result = "the tool failed"
        else:
            self._add("agents", f"execute_tool {tool}", 1, span, agent, tagged | {"gen_ai.tool.call.result": result})
        history.append(_message("assistant", call))
        history.append(_message("tool", {"type": "tool_call_response", "id": call_id, "response": result}))

    def _add(
        self, scope: str, name: str, kind: int, span: str, parent: str | None, attributes: dict[str, Any], **more: Any
    ) -> None:
        start, self._now = self._now, self._now + 1_000_000 + self._chance.randrange(10**6)
        whole = {"traceId": self._trace_id, "spanId": span, **({"parentSpanId": parent} if parent else {}), "name": name}
        whole |= {"kind": kind, "startTimeUnixNano": str(start), "endTimeUnixNano": str(self._now)}
        self.spans.append((scope, whole | {"attributes": _pairs(attributes), "status": {}} | more))


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
    chance = random.Random(11)
    resource = {"attributes": _pairs({"service.name": "shop"})}
    written = 0
    while written < size:
        scopes: dict[str, list[dict[str, Any]]] = {}
        for _ in range(10):
            for scope, span in _Run(chance).spans:
                scopes.setdefault(scope, []).append(span)
        batches = [{"scope": {"name": scope}, "spans": spans} for scope, spans in scopes.items()]
        line = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": batches}]}, separators=(",", ":"))
        written += len(line) + 1
        yield line.encode() + b"\n"
