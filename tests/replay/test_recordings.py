# SPDX-License-Identifier: Apache-2.0
"""Plans of what real frameworks recorded (tests/data), content on and off."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from genai_processor.replay import Choice, Declared, Operation, Plan, plan
from genai_processor.spans.otlp import read_spans

DATA = Path(__file__).parent.parent / "data"
FILES = sorted(DATA.glob("*/*/*.jsonl"))
WITHOUT_CONTENT = sorted({path.parent for path in FILES if path.parent.name.endswith("__nocontent")})
LEAKS = {"google-adk__openinference__nocontent"}


def planned(path: Path, declared: Declared | None = None) -> Plan:
    def fail(error: object) -> None:
        pytest.fail(str(error))

    return plan(read_spans(path, on_error=fail), declared=declared)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_node_has_a_decision_and_every_refusal_a_remedy(path: Path) -> None:
    found = planned(path)
    assert set(found.decisions) == {node.key for node in found.nodes}
    for node in found.nodes:
        decision = found.decisions[node.key]
        assert decision.reasons
        assert decision.choice is not Choice.REFUSE or decision.remedy
        assert decision.choice is not Choice.INJECT or decision.modes
        assert decision.choice is Choice.REFUSE or node.inputs.digest or node.operation is not Operation.INFERENCE


@pytest.mark.parametrize("folder", WITHOUT_CONTENT, ids=lambda path: path.name)
def test_without_content_every_model_is_refused(folder: Path) -> None:
    for path in sorted(folder.glob("*.jsonl")):
        found = planned(path, Declared(deterministic=("*",), recompute=("*",)))
        for node in found.nodes:
            if node.operation is Operation.INFERENCE and folder.name not in LEAKS:
                assert found.decisions[node.key].choice is Choice.REFUSE, f"{path}: {node.key}"


WITH_MESSAGES = (
    "agent-framework__native",
    "google-adk__native",
    "langchain__genai",
    "langchain__langsmith",
    "langchain__openinference",
    "langchain__traceloop",
    "llama-index__openinference",
    "llama-index__traceloop",
    "openai-agents__genai-official",
    "openai-agents__openinference",
    "openai-agents__traceloop",
    "pydantic-ai1__native-default",
    "pydantic-ai__logfire",
    "pydantic-ai__native-v2",
    "pydantic-ai__native-v5",
    "pydantic-ai__openinference",
    "strands-agents__native",
    "strands-agents__openinference",
)


@pytest.mark.parametrize("folder", WITH_MESSAGES)
def test_with_content_every_models_input_is_read_whole(folder: str) -> None:
    found = collections.Counter(
        found.decisions[node.key].choice
        for path in sorted((DATA / "corpus" / folder).glob("*.jsonl"))
        for found in [planned(path)]
        for node in found.nodes
        if node.operation is Operation.INFERENCE
    )
    assert found[Choice.INJECT] > 0
    assert found[Choice.REFUSE] == 0


ENDED_WELL = [path for folder in WITH_MESSAGES for path in (DATA / "corpus" / folder).glob("s01_ok.jsonl")]
assert len(ENDED_WELL) > len(WITH_MESSAGES) / 2


@pytest.mark.parametrize("path", ENDED_WELL, ids=lambda path: path.parent.name)
def test_a_call_that_ended_well_goes_from_the_model_through_the_tool_to_the_model(path: Path) -> None:
    found = planned(path)
    kinds = collections.Counter(str(edge.kind) for node in found.nodes for edge in found.edges_into(node.key))
    assert kinds == {"proposal": 1, "echo": 1, "result": 1}
    assert all(not node.structure.unobserved and not node.structure.ambiguous for node in found.nodes)
