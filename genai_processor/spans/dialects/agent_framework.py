# SPDX-License-Identifier: Apache-2.0
"""Microsoft agent-framework, native and as OpenInference rewrites it. Makes no span for a call that it rejects."""

from __future__ import annotations

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, result_if_arguments

AGENT_FRAMEWORK = Dialect(
    name="Microsoft agent-framework",
    scopes=("agent_framework*",),
    runtime=runtimes.AGENT_FRAMEWORK,
    has_end_mark=result_if_arguments,
)
DIALECTS = (AGENT_FRAMEWORK,)
