# SPDX-License-Identifier: Apache-2.0
"""A real pydantic-ai agent recorded for replay: what its models are asked is stamped where its spans do not record it."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from support.recording import Recorder, broken, digests, recording, sources
from support.stamps import is_inference, stamp_of, without_inputs
from support.traps import Trap

from genai_processor.replay import Choice, Declared, Operation, OrderEvidence, State, differences, plan, replaying
from genai_processor.replay.recording import installing

DECLARED = Declared(deterministic=("*",), recompute=("*",))


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for two things at once, then for a third, then answer."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("search", {"query": f"q{n}"}, f"call_Xk29LmQ8vT{n}") for n in range(2)])
    if len(messages) == 3:
        return ModelResponse(parts=[ToolCallPart("search", {"query": "q2"}, "call_Xk29LmQ8vT2")])
    return ModelResponse(parts=[TextPart("the answer")])


async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
    for part in script(messages, info).parts:
        if isinstance(part, ToolCallPart):
            number = int(part.tool_call_id[-1])
            yield {number: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            yield part.content[:3]
            yield part.content[3:]


def agent(found: str = "found", trap: Trap | None = None) -> Agent[None, str]:
    def search(query: str) -> str:
        if trap is not None:
            trap.spring("search")
        return f"{found} {query}"

    return Agent(FunctionModel(script, stream_function=stream), tools=[search], instructions="be brief")


def run(recorder: Recorder, *, content: bool = False, streamed: bool = False, found: str = "found") -> Recorder:
    settings = InstrumentationSettings(tracer_provider=recorder.provider, include_content=content)
    Agent.instrument_all(settings)
    try:
        if streamed:
            asyncio.run(_stream(agent(found)))
        else:
            assert agent(found).run_sync("compare").output == "the answer"
    finally:
        Agent.instrument_all(False)
    return recorder


async def _stream(mine: Agent[None, str]) -> None:
    async with mine.run_stream("compare") as result:
        assert await result.get_output() == "the answer"


@pytest.mark.parametrize("streamed", [False, True])
def test_with_content_off_the_stamps_are_those_of_the_same_run_with_content(streamed: bool) -> None:
    with recording() as on:
        run(on, content=True, streamed=streamed)
    with recording() as off:
        run(off, streamed=streamed)
    assert sources(on.stamps()) == ["gen_ai.input.messages"] * 3
    assert sources(off.stamps()) == ["request"] * 3
    assert digests(off.stamps()) == digests(on.stamps())
    assert [stamp["genai.replay.system.digest"] for stamp in off.stamps()] == [
        stamp["genai.replay.system.digest"] for stamp in on.stamps()
    ]


def test_with_content_off_nothing_of_what_was_said_is_stamped() -> None:
    with recording() as off:
        run(off)
    assert not any(word in str(off.stamps()) for word in ("compare", "q0", "found", "brief", "answer"))


def test_messages_that_the_sdk_cut_are_rebuilt_from_their_producers() -> None:
    limit = 350
    with recording(limit=limit, record_for_replay=False) as bare:
        run(bare, content=True)
    with recording(limit=limit) as recorder:
        run(recorder, content=True)
    assert sources(recorder.stamps()) == ["gen_ai.input.messages", "request", "request"]
    without = plan(bare.spans(), declared=DECLARED, length_limit=limit)
    found = plan(recorder.spans(), declared=DECLARED, length_limit=limit)
    assert [without.decisions[node.key].choice for node in without.nodes].count(Choice.REFUSE) == 2
    assert {decision.choice for decision in found.decisions.values()} == {Choice.RECOMPUTE, Choice.INJECT}
    last = [node for node in found.nodes if node.operation is Operation.INFERENCE][-1]
    assert last.inputs.order is OrderEvidence.STAMP
    assert [part.value for part in last.inputs.parts if part.kind == "result"] == ["found q0", "found q1", "found q2"]


def test_a_real_agent_is_replayed_from_a_recording_whose_histories_were_dropped(trap: Trap) -> None:
    with recording() as recorder:
        run(recorder, content=True)
    spans = recorder.spans()
    first = next(one for one in spans if is_inference(one))
    poor = [one if one is first else without_inputs(one) for one in spans]
    with replaying(poor) as replayed:
        assert agent(trap=trap).run_sync("compare").output == "the answer"
    assert replayed.not_reached == ()
    with replaying(list(map(without_inputs, spans))) as replayed:  # the question is nowhere, and known by its digest
        assert agent(trap=trap).run_sync("compare").output == "the answer"
    with pytest.raises(Exception, match="not what was recorded"), replaying(list(map(without_inputs, spans))):
        agent(trap=trap).run_sync("compare something else")


def test_two_recordings_without_content_are_compared_by_their_stamps() -> None:
    with recording() as recorder:
        first = plan(run(recorder).spans())
    with recording() as recorder:
        same = plan(run(recorder).spans())
    with recording() as recorder:
        other = plan(run(recorder, found="lost").spans())
    assert all(node.inputs.stamped for node in first.nodes if node.operation is Operation.INFERENCE)
    assert differences(first, same) == ()
    (parting,) = differences(first, other)
    assert parting.parting == "input"
    assert parting.first is not None
    assert parting.first.inputs.state is State.WITHHELD
    bare = plan([one._replace(attributes=_unstamped(one.attributes)) for one in recorder.spans()])
    assert not any(node.inputs.digest for node in bare.nodes if node.operation is Operation.INFERENCE)


def _unstamped(attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not name.startswith("genai.replay.")}


def test_a_hook_that_breaks_costs_only_the_stamp(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("genai_processor.replay.recording.pydantic_ai.list_of", broken)
    monkeypatch.setattr(installing._installed, "said", set())
    with recording() as recorder:
        run(recorder)
    assert recorder.stamps() == [{}] * 3
    assert sum("could not be looked at" in record.getMessage() for record in caplog.records) == 1


def test_nothing_is_wrapped_unless_asked_for_and_what_was_there_is_put_back() -> None:
    original = inspect.getattr_static(InstrumentationSettings, "handle_messages")
    with recording(record_for_replay=False):
        assert inspect.getattr_static(InstrumentationSettings, "handle_messages") is original
    with recording():
        assert inspect.getattr_static(InstrumentationSettings, "handle_messages") is not original
    assert inspect.getattr_static(InstrumentationSettings, "handle_messages") is original


def test_a_version_that_is_not_as_expected_is_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def handle_messages(self: Any, everything: Any) -> None: ...

    monkeypatch.setattr(InstrumentationSettings, "handle_messages", handle_messages)
    with recording():
        assert inspect.getattr_static(InstrumentationSettings, "handle_messages") is handle_messages
    assert "has no input_messages" in caplog.text


def test_a_span_that_is_not_sampled_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    from genai_processor.replay.recording import requests

    with recording() as recorder:
        recorder.provider.sampler = ALWAYS_OFF
        run(recorder)
    assert requests._shown == {}


def test_what_the_stamps_say_is_all_there_is_on_other_spans() -> None:
    with recording() as recorder:
        run(recorder)
    assert [stamp_of(span) for span in recorder.spans() if not is_inference(span)] == [{}] * 4
