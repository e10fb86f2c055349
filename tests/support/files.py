# SPDX-License-Identifier: Apache-2.0
"""Spans as OTLP/JSON lines, one a span, so that a test can spread them over files."""

from __future__ import annotations

import json
from typing import Any

from genai_processor.spans.records import Span


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": value}


def _pairs(attributes: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def otlp_line(one: Span) -> bytes:
    """A span without events as one OTLP/JSON line."""
    row = {
        "traceId": one.trace_id,
        "spanId": one.span_id,
        "parentSpanId": one.parent_span_id or "",
        "name": one.name,
        "kind": 1,
        "startTimeUnixNano": str(one.start_ns or 0),
        "endTimeUnixNano": str(one.end_ns or 0),
        "attributes": _pairs(one.attributes),
        "links": [{"traceId": link.trace_id, "spanId": link.span_id} for link in one.links],
        "status": {"code": int(one.status)},
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"scope": {"name": one.scope}, "spans": [row]}]}]}).encode()
