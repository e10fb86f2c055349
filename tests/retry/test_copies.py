# SPDX-License-Identifier: Apache-2.0
"""One span in several copies: from two exporters, or written before it ended and again when it had."""

from __future__ import annotations

import pytest
from support.spans import ARGS, ID, Read, tool

from genai_processor.spans.records import Event, Span, StatusCode

WHOLE = tool(id=ID, args=ARGS, error="TimeoutError")
OPEN = WHOLE._replace(end_ns=None, status=StatusCode.UNSET, attributes={"gen_ai.operation.name": "execute_tool"})
FINE = WHOLE._replace(status=StatusCode.OK, attributes={k: v for k, v in WHOLE.attributes.items() if k != "error.type"})
BARE = WHOLE._replace(attributes={k: v for k, v in WHOLE.attributes.items() if "arguments" not in k})
MASKED = WHOLE._replace(attributes={**WHOLE.attributes, "gen_ai.tool.call.arguments": "[REDACTED]"})
RAISED = FINE._replace(events=(Event("exception", {"exception.type": "TimeoutError"}),))


@pytest.mark.parametrize("other", [WHOLE, OPEN, FINE, BARE, MASKED, RAISED])
@pytest.mark.parametrize("first", [True, False])
def test_copies_tell_together_what_each_tells(other: Span, first: bool) -> None:
    read = Read([other, WHOLE] if first else [WHOLE, other])
    assert len(read.rows) == 1
    assert read.verdict(WHOLE) == ("quarantined", "commitment_marker")
    assert read.duplicates == []


def test_the_failure_may_stand_on_the_copy_that_has_less() -> None:
    failed = BARE._replace(attributes={"gen_ai.operation.name": "execute_tool"})
    for copies in ([FINE, failed], [failed, FINE]):
        assert Read(copies).verdict(FINE) == ("quarantined", "commitment_marker")


def test_what_merely_has_the_same_id_is_no_copy() -> None:
    other = WHOLE._replace(start_ns=50, end_ns=60)
    assert Read([FINE, other]).verdict(FINE) == ("no_retry_needed", "succeeded")
