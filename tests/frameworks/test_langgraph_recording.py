# SPDX-License-Identifier: Apache-2.0
"""Real LangChain models and LangGraph agents recorded for replay, beside the official instrumentation of LangChain."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain")
pytest.importorskip("opentelemetry.instrumentation.genai.langchain")

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, tool
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from support.recording import Recorder, broken, digests, recording, sources
from support.stamps import is_inference, without_inputs

from genai_processor.replay import Choice, Declared, plan
from genai_processor.replay.recording import installing

DECLARED = Declared(deterministic=("*",), recompute=("*",))
QUESTION: Any = {"messages": [("user", "compare")]}


class Scripted(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_invocation_params(self, stop: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"model": "scripted"}

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def answer(self, messages: list[BaseMessage]) -> AIMessage:
        if len(messages) == 1:
            calls = [{"name": "search", "args": {"query": f"q{n}"}, "id": f"call_Xk29LmQ8vT{n}"} for n in range(2)]
            return AIMessage("", tool_calls=calls)
        return AIMessage("the answer")

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])


class Streaming(Scripted):
    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        answer = self.answer(messages)
        for word in answer.content.split(" ") if isinstance(answer.content, str) and answer.content else ():
            yield ChatGenerationChunk(message=AIMessageChunk(f"{word} "))
        for at, call in enumerate(answer.tool_calls):
            piece = {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": at}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[piece]))


@tool
def search(query: str) -> str:
    """Look it up."""
    return f"found {query}"


@pytest.fixture(autouse=True)
def instrumented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    for name in ("run", "arun", "_to_args_and_kwargs"):  # LangChain's wrappers come off last, and put ours back as they go
        monkeypatch.setattr(BaseTool, name, inspect.getattr_static(BaseTool, name))
    yield
    LangChainInstrumentor().uninstrument()


def instrument(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, *, content: bool) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY" if content else "NO_CONTENT")
    LangChainInstrumentor().uninstrument()
    LangChainInstrumentor().instrument(tracer_provider=recorder.provider)


def ran(model: BaseChatModel, how: str) -> None:
    graph: Any = create_agent(model, [search])
    if how == "invoke":
        graph.invoke(QUESTION)
    elif how == "ainvoke":
        asyncio.run(graph.ainvoke(QUESTION))
    elif how == "stream":
        assert list(graph.stream(QUESTION, stream_mode="messages"))
    else:
        asyncio.run(_drain(graph))


async def _drain(graph: Any) -> None:
    assert [piece async for piece in graph.astream(QUESTION, stream_mode="messages")]


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("model", [Scripted, Streaming])
def test_with_content_off_the_stamps_are_those_of_the_same_run_with_content(
    how: str, model: type[BaseChatModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for content in (True, False):
        with recording() as recorder:
            instrument(recorder, monkeypatch, content=content)
            ran(model(), how)
        assert set(sources(recorder.stamps())) == {"gen_ai.input.messages" if content else "request"}
        found.append(digests(recorder.stamps()))
    assert found[0] == found[1]
    assert len(found[0]) == 2


@pytest.mark.parametrize("streams", [False, True])
def test_a_model_that_is_streamed_by_itself_is_stamped_with_what_it_said(
    streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Streaming() if streams else Scripted()

    async def drain() -> None:
        assert [chunk async for chunk in model.astream("compare")]

    with recording() as recorder:
        instrument(recorder, monkeypatch, content=False)
        model.invoke("compare")
        assert list(model.stream("compare"))
        asyncio.run(drain())
    assert len(set(digests(recorder.stamps()))) == 1
    assert "genai.replay.output.digest" in recorder.stamps()[1]


def test_what_an_application_asks_while_it_reads_a_stream_has_its_own_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as recorder:
        instrument(recorder, monkeypatch, content=False)
        for at, _ in enumerate(Streaming().stream("compare")):
            if not at:
                Scripted().invoke("another question")
    inner, outer = recorder.stamps()
    assert inner["genai.replay.input.digest"] != outer["genai.replay.input.digest"]


def test_what_a_model_does_to_answer_is_not_stamped_with_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as recorder:
        tracer = recorder.provider.get_tracer("another framework, which no hook knows")

        class Asking(Scripted):
            def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
                with (
                    tracer.start_as_current_span("invoke_agent b", attributes={"gen_ai.operation.name": "invoke_agent"}),
                    tracer.start_as_current_span("chat inner", attributes={"gen_ai.operation.name": "chat"}),
                ):
                    return super()._generate(messages)

        instrument(recorder, monkeypatch, content=False)
        Asking().invoke("compare")
    inner, outer = recorder.stamps()
    assert inner == {}
    assert outer["genai.replay.input.source"] == "request"


def test_a_batch_of_prompts_in_one_call_is_not_stamped_with_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as recorder:
        instrument(recorder, monkeypatch, content=False)
        Scripted().generate([[AIMessage("one")], [AIMessage("two")]])
    assert recorder.stamps() == [{}, {}]


def test_a_run_whose_histories_were_dropped_is_recomputed_from_its_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as recorder:
        instrument(recorder, monkeypatch, content=True)
        ran(Scripted(), "invoke")
    spans = recorder.spans()
    first = next(one for one in spans if is_inference(one))
    found = plan([one if one is first else without_inputs(one) for one in spans], declared=DECLARED)
    assert {decision.choice for decision in found.decisions.values()} == {Choice.RECOMPUTE, Choice.INJECT}


def test_a_hook_that_breaks_costs_only_the_stamp(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("genai_processor.replay.recording.langchain.list_of", broken)
    monkeypatch.setattr(installing._installed, "said", set())
    with recording() as recorder:
        instrument(recorder, monkeypatch, content=False)
        ran(Scripted(), "invoke")
        assert list(Streaming().stream("compare"))
    assert recorder.stamps() == [{}] * 3
    assert sum("could not be looked at" in record.getMessage() for record in caplog.records) == 1


def test_what_was_there_is_put_back() -> None:
    code = """if True:
        import inspect
        from langchain_core.language_models import BaseChatModel
        from genai_processor import GenAIProcessorInstrumentor

        def now():
            names = ("generate", "agenerate", "_generate_with_cache", "_agenerate_with_cache", "stream", "astream")
            return [id(inspect.getattr_static(BaseChatModel, name)) for name in names]

        before = now()
        GenAIProcessorInstrumentor().instrument(record_for_replay=True)
        print(set(now()) & set(before))
        GenAIProcessorInstrumentor().uninstrument()
        print(now() == before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "True"]


def test_a_wrapper_that_has_to_stay_under_that_of_another_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    depths = []
    for _ in range(4):
        with recording() as recorder:
            instrument(recorder, monkeypatch, content=False)  # whose wrappers are put around ours, and stay longer
            ran(Scripted(), "invoke")
        assert sources(recorder.stamps()) == ["request"] * 2
        depths.append(0)
        function = inspect.getattr_static(BaseChatModel, "_generate_with_cache")
        while function is not None:
            depths[-1] += 1
            function = getattr(function, "__wrapped__", None)
    assert max(depths) <= 3, "they pile up"
