# SPDX-License-Identifier: Apache-2.0
"""The spans of real frameworks, under real instrumentations, say what the guard did with the calls that they show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, InstrumentationSettings

from benchmarks.incidents import langgraph, pydantic_ai
from benchmarks.incidents.kit import Incident, count
from genai_processor import GenAIProcessorInstrumentor, Guard
from genai_processor.guard.bindings import BOUND

Exporter = InMemorySpanExporter


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    LangChainInstrumentor().instrument(tracer_provider=provider)
    GenAIProcessorInstrumentor().instrument(tracer_provider=provider, guard=Guard(mode="enforce"))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    yield kept
    Agent.instrument_all(False)
    GenAIProcessorInstrumentor().uninstrument()  # the last first: what is under a wrapper cannot be taken away
    LangChainInstrumentor().uninstrument()
    provider.shutdown()


def tool_spans(exporter: Exporter) -> list[dict[str, Any]]:
    found = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    return [span for span in found if span.get("gen_ai.operation.name") == "execute_tool"]


def told(framework: Any, name: str) -> Incident:
    [incident] = [incident for incident in framework.INCIDENTS if incident.name == name]
    return incident


FIRST = {pydantic_ai: pydantic_ai.INCIDENTS[0].name, langgraph: langgraph.INCIDENTS[0].name}


@pytest.mark.parametrize("framework", FIRST, ids=lambda framework: framework.__name__.rpartition(".")[2])
def test_a_call_that_was_lost_and_the_one_that_was_refused(framework: Any, exporter: Exporter) -> None:
    assert count(told(framework, FIRST[framework])) == 1
    spans = tool_spans(exporter)
    assert [span["genai.guard.outcome"] for span in spans] == ["granted", "refused"]
    assert [span["genai.retry.reason"] for span in spans][1] == "refused_by_guard"
    assert {span["genai.retry.verdict"] for span in spans} == {"quarantined"}
    assert len({span["genai.retry.entry_id"] for span in spans}) == 1
    assert BOUND == {}


@pytest.mark.parametrize("framework", FIRST, ids=lambda framework: framework.__name__.rpartition(".")[2])
def test_calls_side_by_side_each_have_their_own_span(framework: Any, exporter: Exporter) -> None:
    incident = next(incident for incident in framework.INCIDENTS if incident.bare == incident.enforced == 3)
    assert count(incident) == 3
    spans = tool_spans(exporter)
    assert len({span["genai.retry.entry_id"] for span in spans}) == len(spans) == 3
    assert {span["genai.guard.outcome"] for span in spans} == {"granted"}
    assert BOUND == {}
