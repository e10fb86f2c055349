# SPDX-License-Identifier: Apache-2.0
"""Real agents of the OpenAI Agents SDK recorded for replay: its own models, and a provider that answers from a script."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("agents")
pytest.importorskip("opentelemetry.instrumentation.genai.openai_agents")
pytest.importorskip("opentelemetry.instrumentation.genai.openai")

import httpx
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from support.recording import Recorder, broken, digests, recording, sources

from genai_processor.replay import Choice, Declared, OrderEvidence, Plan, State, plan
from genai_processor.replay.recording import installing

DECLARED = Declared(deterministic=("*",), recompute=("*",))
USAGE = {
    "input_tokens": 1,
    "output_tokens": 1,
    "total_tokens": 2,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
INSTRUMENTATIONS = ("opentelemetry.instrumentation.genai.openai_agents", "openinference.instrumentation.openai_agents")


@pytest.fixture(params=INSTRUMENTATIONS)
def instrumentation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Instrument a recorder's provider; the first of the two leaves a model's spans to the instrumentation of its client."""
    pytest.importorskip(request.param)
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    modules = [importlib.import_module(request.param)]
    of_client = importlib.import_module("opentelemetry.instrumentation.genai.openai").OpenAIInstrumentor()
    used = [modules[0].OpenAIAgentsInstrumentor(), *([of_client] if request.param.startswith("opentelemetry") else ())]

    def instrument(recorder: Recorder, *, content: bool) -> None:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY" if content else "NO_CONTENT")
        monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", str(not content))
        monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUTS", str(not content))
        uninstrument()
        for one in used:
            one.instrument(tracer_provider=recorder.provider)

    def uninstrument() -> None:
        for one in used:
            if one.is_instrumented_by_opentelemetry:
                one.uninstrument()

    yield instrument
    uninstrument()


class Provider:
    """Proposes two calls, then answers; knows its responses, and keeps conversations."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.name = uuid4().hex

    def responds(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        if "messages" in body:
            return httpx.Response(200, json=self._completion(body["messages"]))
        answered = any(item.get("type") == "function_call_output" for item in body["input"])
        made = self._response(body, len(self.asked), answered)
        if not body.get("stream"):
            return httpx.Response(200, json=made)
        event = {"type": "response.completed", "sequence_number": 0, "response": made}
        return httpx.Response(
            200,
            text=f"event: response.completed\ndata: {json.dumps(event)}\n\n",
            headers={"content-type": "text/event-stream"},
        )

    def _response(self, body: Any, number: int, answered: bool) -> Any:
        calls: list[Any] = [
            {
                "type": "function_call",
                "id": f"fc_{number}_{n}",
                "call_id": f"call_Xk29LmQ8vT{n}",
                "name": "search",
                "arguments": json.dumps({"query": f"q{n}"}),
                "status": "completed",
            }
            for n in range(2)
        ]
        text = {"type": "output_text", "text": "the answer", "annotations": []}
        says = {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed", "content": [text]}
        return {
            "id": f"resp_{number}_{self.name}",
            "object": "response",
            "created_at": 0,
            "model": "scripted",
            "status": "completed",
            "output": [says] if answered else calls,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "previous_response_id": body.get("previous_response_id"),
            "usage": USAGE,
        }

    def _completion(self, messages: Any) -> Any:
        answered = any(message["role"] == "tool" for message in messages)
        calls = [
            {
                "id": f"call_Xk29LmQ8vT{n}",
                "type": "function",
                "function": {"name": "search", "arguments": json.dumps({"query": f"q{n}"})},
            }
            for n in range(2)
        ]
        message = {"role": "assistant", "content": "the answer"} if answered else {"role": "assistant", "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if answered else "tool_calls"}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}

    def client(self) -> AsyncOpenAI:
        transport = httpx.MockTransport(self.responds)
        return AsyncOpenAI(api_key="none", http_client=httpx.AsyncClient(transport=transport))


@function_tool
def search(query: str) -> str:
    """Look it up."""
    return f"found {query}"


def run(model: Any = OpenAIResponsesModel, *, streamed: bool = False, **options: Any) -> Provider:
    provider = Provider()
    agent = Agent("a", instructions="be brief", tools=[search], model=model("scripted", provider.client()))

    async def main() -> Any:
        if not streamed:
            return await Runner.run(agent, "compare", **options)
        result = Runner.run_streamed(agent, "compare", **options)
        async for _ in result.stream_events():
            pass
        return result

    assert asyncio.run(main()).final_output == "the answer"
    return provider


def models(found: Plan) -> list[Any]:
    """The inferences of a plan by how many parts they read."""
    return sorted((node for node in found.nodes if node.operation == "inference"), key=lambda node: len(node.inputs.parts))


@pytest.mark.parametrize("model", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
@pytest.mark.parametrize("streamed", [False, True])
def test_with_content_off_the_stamps_are_those_of_the_same_run_with_content(
    instrumentation: Any, model: Any, streamed: bool
) -> None:
    if streamed and model is OpenAIChatCompletionsModel:
        pytest.skip("the scripted provider streams responses only")
    found = []
    for content in (True, False):
        with recording() as recorder:
            instrumentation(recorder, content=content)
            run(model, streamed=streamed)
        assert ("request" in sources(recorder.stamps())) is not content
        found.append([inputs for inputs, _ in digests(recorder.stamps())])
    assert found[0] == found[1]
    assert len(found[0]) == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_goes_on_from_a_response_is_stamped_with_all_that_the_provider_has(
    instrumentation: Any, streamed: bool
) -> None:
    with recording() as recorder:
        instrumentation(recorder, content=True)
        run(streamed=streamed)
    whole = digests(recorder.stamps())
    with recording() as recorder:
        instrumentation(recorder, content=True)
        provider = run(streamed=streamed, auto_previous_response_id=True)
    assert [item.get("type") for item in provider.asked[1]["input"]] == ["function_call_output"] * 2
    assert digests(recorder.stamps()) == whole
    assert recorder.stamps()[1]["genai.replay.input.continues"] == "response"
    spans = recorder.spans()
    bare = plan([one._replace(attributes=_unstamped(one.attributes)) for one in spans], declared=DECLARED)
    found = plan(spans, declared=DECLARED)
    assert Choice.REFUSE in [bare.decisions[node.key].choice for node in models(bare)]
    assert Choice.REFUSE not in [found.decisions[node.key].choice for node in models(found)]
    _, last = models(found)
    assert last.inputs.order is OrderEvidence.STAMP
    assert [part.value for part in last.inputs.parts if part.kind == "result"] == ["found q0", "found q1"]
    assert last.inputs.parts[0].value == "compare"


def _unstamped(attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not name.startswith("genai.replay.")}


def test_a_request_that_goes_on_from_a_response_of_somebody_else_is_refused(instrumentation: Any) -> None:
    with recording() as recorder:
        instrumentation(recorder, content=True)
        run(previous_response_id="resp_of_another_process")
    found = plan(recorder.spans(), declared=DECLARED)
    assert {decision.choice for key, decision in found.decisions.items() if found.node(key).operation == "inference"} == {
        Choice.REFUSE
    }
    assert all(State.HELD_BY_PROVIDER in node.inputs.states for node in models(found))


def test_a_request_in_a_conversation_that_the_provider_keeps_is_refused(instrumentation: Any) -> None:
    with recording() as recorder:
        instrumentation(recorder, content=True)
        run(conversation_id="conv_1")
    found = plan(recorder.spans(), declared=DECLARED)
    assert all(found.decisions[node.key].reasons[0] == "input_held_by_provider" for node in models(found))
    assert {found.decisions[node.key].choice for node in models(found)} == {Choice.REFUSE}


def test_a_hook_that_breaks_costs_only_the_stamp(instrumentation: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("genai_processor.replay.recording.openai_agents.list_of", broken)
    monkeypatch.setattr(installing._installed, "said", set())
    with recording() as recorder:
        instrumentation(recorder, content=False)
        run()
        run(streamed=True)
    assert not any("genai.replay.input.digest" in stamp for stamp in recorder.stamps())
    assert sum("could not be looked at" in record.getMessage() for record in caplog.records) == 1


def test_what_was_there_is_put_back() -> None:
    names = ("get_response", "stream_response", "_fetch_response")
    before = [inspect.getattr_static(OpenAIResponsesModel, name) for name in names]
    with recording():
        now = [inspect.getattr_static(OpenAIResponsesModel, name) for name in names]
        assert not any(one is other for one, other in zip(now, before, strict=True))
    now = [inspect.getattr_static(OpenAIResponsesModel, name) for name in names]
    assert all(one is other for one, other in zip(now, before, strict=True))
