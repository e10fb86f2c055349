# SPDX-License-Identifier: Apache-2.0
"""agno: official instrumentation, OpenInference, OpenLLMetry (CLIENT spans that are OK on a failure)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import never_named, result_if_arguments, status_ok
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY
from genai_processor.spans.records import Span


def _status_failure(span: Span, result: Any) -> Iterable[str]:
    """Agno's FunctionExecutionResult, rendered: `status='failure'`."""
    if isinstance(result, str) and "status='failure'" in result:
        yield "status='failure'"


GENAI = dataclasses.replace(
    CONVENTIONS,
    name="agno (official)",
    scopes=("opentelemetry.instrumentation.genai.agno",),
    runtime=runtimes.AGNO,
    has_end_mark=result_if_arguments,
)
OPENINFERENCE_AGNO = dataclasses.replace(
    OPENINFERENCE,
    name="agno (OpenInference)",
    scopes=("openinference.instrumentation.agno",),
    runtime=runtimes.AGNO,
    unnamed=never_named,
    definitions=("llm.tools.", "agno.tools"),
)
TRACELOOP = dataclasses.replace(
    OPENLLMETRY,
    name="agno (OpenLLMetry)",
    scopes=("opentelemetry.instrumentation.agno",),
    runtime=runtimes.AGNO,
    unnamed=never_named,
    has_end_mark=status_ok,
    failures=_status_failure,
)
DIALECTS = (GENAI, OPENINFERENCE_AGNO, TRACELOOP)
