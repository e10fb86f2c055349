# SPDX-License-Identifier: Apache-2.0
"""CrewAI: OpenInference, and OpenLLMetry (no tool spans at all, only agents and tasks)."""

from __future__ import annotations

import dataclasses

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import never_named
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY

OPENINFERENCE_CREWAI = dataclasses.replace(
    OPENINFERENCE,
    name="CrewAI (OpenInference)",
    scopes=("openinference.instrumentation.crewai",),
    runtime=runtimes.CREWAI,
    unnamed=never_named,
    schemas=("tool.parameters",),
)
TRACELOOP = dataclasses.replace(
    OPENLLMETRY,
    name="CrewAI (OpenLLMetry)",
    scopes=("opentelemetry.instrumentation.crewai.instrumentation", "opentelemetry.instrumentation.crewai"),
    runtime=runtimes.CREWAI,
    definitions=("crewai.agent.tools",),
)
DIALECTS = (OPENINFERENCE_CREWAI, TRACELOOP)
