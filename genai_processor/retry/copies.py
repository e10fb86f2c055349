# SPDX-License-Identifier: Apache-2.0
"""One span, recorded more than once: by several exporters, or before and after it ended."""

from __future__ import annotations

from genai_processor.spans.records import Span, StatusCode
from genai_processor.spans.values import same


def merged(one: Span, other: Span) -> Span:
    """What two copies of a span tell together. A failure that one of them tells of stands, and so do the arguments.

    Two spans that merely have one id tell nothing of each other: then it is the first.
    """
    if one.start_ns != other.start_ns or same(one, other):
        return one
    whole, part = (other, one) if _fullness(other) > _fullness(one) else (one, other)
    failed = _ERROR in (one.status, other.status)
    return whole._replace(
        attributes={**part.attributes, **whole.attributes},
        events=whole.events if len(whole.events) >= len(part.events) else part.events,
        links=whole.links if len(whole.links) >= len(part.links) else part.links,
        status=_ERROR if failed else whole.status,
    )


def _fullness(span: Span) -> tuple[bool, int, int]:
    texts = [value for value in span.attributes.values() if isinstance(value, str)]
    return span.end_ns is not None, len(span.attributes), sum(map(len, texts))


_ERROR = int(StatusCode.ERROR)
