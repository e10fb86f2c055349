# SPDX-License-Identifier: Apache-2.0
"""What is not in the record stops a pydantic-ai run for good, whatever the framework or the application do about it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import FunctionModel
from support.plans import Making, answered, calls, retrievals, says, user
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay import replaying


def agent(trap: Trap, **more: Any) -> Agent[Any, Any]:
    made: Agent[Any, Any] = Agent(FunctionModel(lambda *_: trap.spring("the model")), **more)

    @made.tool_plain
    async def search(query: str, limit: int = 10) -> str:
        trap.spring("search")

    return made


class Refund(BaseModel):
    order: str


def run(mine: Agent[Any, Any]) -> None:
    mine.run_sync("v")


def swallow(mine: Agent[Any, Any]) -> None:
    for _ in range(3):
        with contextlib.suppress(BaseException):
            mine.run_sync("v")


def in_thread(mine: Agent[Any, Any]) -> None:
    def body() -> None:
        with contextlib.suppress(BaseException):
            asyncio.run(mine.run("v"))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def in_pool(mine: Agent[Any, Any]) -> None:
    with ThreadPoolExecutor(1) as pool, contextlib.suppress(BaseException):
        pool.submit(lambda: asyncio.run(mine.run("v"))).result()


def gathered(mine: Agent[Any, Any]) -> None:
    async def main() -> None:
        await asyncio.gather(*(mine.run("v") for _ in range(3)), return_exceptions=True)

    asyncio.run(main())


def streamed(mine: Agent[Any, Any]) -> None:
    async def main() -> None:
        with contextlib.suppress(Exception):
            async with mine.run_stream("v") as stream:
                await stream.get_output()

    asyncio.run(main())


def directly(mine: Agent[Any, Any]) -> None:
    from pydantic_ai.direct import model_request_sync

    with contextlib.suppress(Exception):
        model_request_sync(mine.model, [ModelRequest.user_text_prompt("v")])


@pytest.mark.parametrize("runs", [run, swallow, in_thread, in_pool, gathered, streamed, directly])
def test_another_question_stops_at_the_model(runs: Callable[[Agent[Any, Any]], None], trap: Trap) -> None:
    made = retrievals()
    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan()):
        runs(agent(trap))
    found = caught.value
    assert (found.node, found.where) == (made.nodes[0].key, "input")
    assert found.expected != found.got
    assert "recorded user text 'compare them', now user text 'v'" in found.difference
    assert dict(found.last_valid_boundary.outcomes) == {}


def test_a_direct_request_is_answered(trap: Trap) -> None:
    from pydantic_ai.direct import model_request_sync

    with replaying(retrievals().plan(), whole=False):
        response = model_request_sync(agent(trap).model, [ModelRequest.user_text_prompt("compare them")])
    assert [part.tool_call_id for part in response.tool_calls] == ["call_0", "call_1", "call_2"]


def test_a_live_model_that_calls_what_is_not_in_the_record_stops_before_the_tool(trap: Trap) -> None:
    made = retrievals()

    def model(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("search", {"query": "other"}, tool_call_id="x")])

    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan(), models="live"):
        agent(trap).run_sync("compare them", model=FunctionModel(model))
    assert (caught.value.node, caught.value.where) == (made.nodes[0].key, "output")
    assert "recorded assistant call search #1" in caught.value.difference


def nested() -> Making:
    made = Making()
    call = calls("expert", {"question": "why"}, "c0")
    made.chat("11" * 8, [user("u")], [call])
    tool = made.tool("12" * 8, call, "because", composite=True)
    made.chat("14" * 8, [user("u"), call, answered(call, "because")], [says("so")])
    made.chat("15" * 8, [user("why")], [says("because")], agent=tool.key, covered_by=tool.key)
    return made


def test_a_stop_inside_an_entered_tool_that_catches_everything_stops_the_run(trap: Trap) -> None:
    after: list[str] = []
    boss: Agent[Any, Any] = Agent(FunctionModel(lambda *_: trap.spring("the model")))

    @boss.tool_plain
    async def expert(question: str) -> str:
        try:
            return str((await agent(trap).run("why not")).output)
        except BaseException:  # noqa: BLE001 - as badly as it gets
            after.append("caught")
            return "because"

    made = nested()
    with pytest.raises(ReplayDivergence, match="why not") as caught, replaying(made.plan(), enter="expert"):
        boss.run_sync("u")
    assert caught.value.node == made.nodes[3].key
    assert after == ["caught"]


def test_a_tool_that_only_fits_a_pattern_is_not_entered_unless_the_record_shows_an_agent_inside(trap: Trap) -> None:
    with replaying(retrievals().plan(), enter="*"):
        assert agent(trap).run_sync("compare them").output == "the answer"


def test_a_call_that_never_came_back_stops_the_run_if_nobody_cancels_it_again(trap: Trap) -> None:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    node = made.tool("02" * 8, call, "x")
    from genai_processor.replay.parts import EMPTY
    from genai_processor.replay.records import Ending, Outcome, State

    made.nodes[1] = node._replace(outcome=Outcome(Ending.UNKNOWN, State.NOT_RECORDED, EMPTY))
    with (
        pytest.raises(ReplayRefusedError, match=r"search .*never returned, and now nobody cancelled it in 0\.01 s"),
        replaying(made.plan(), patience=0.01),
    ):
        agent(trap).run_sync("u")

    async def main() -> None:
        task = asyncio.create_task(agent(trap).run("u"))
        while node.key not in going.answered:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with replaying(made.plan()) as going:
        asyncio.run(main())


def test_an_answer_can_be_changed_without_changing_the_record(trap: Trap) -> None:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.tool("02" * 8, call, {"hits": ["a"]})
    made.chat("03" * 8, [user("u"), call, answered(call, {"hits": ["a"]})], [says("end")])
    plan = made.plan()

    async def main() -> None:
        async with agent(trap).iter("u") as going:
            async for _ in going:
                pass
        for message in going.result.all_messages():  # type: ignore[union-attr]
            for part in message.parts:
                for value in (getattr(part, "content", None), getattr(part, "args", None)):
                    if isinstance(value, dict):
                        value.clear()

    for _ in range(2):
        with replaying(plan):
            asyncio.run(main())
    assert plan.nodes[1].outcome.parts[0].value == {"hits": ["a"]}


def test_a_block_in_which_nothing_asks_for_the_record_has_diverged() -> None:
    with pytest.raises(ReplayDivergence, match="Nothing in the block") as caught, replaying(retrievals().plan()):
        pass
    assert caught.value.where == "end"
    with replaying(retrievals().plan(), whole=False):
        pass


def test_an_output_function_is_answered_and_not_run(trap: Trap) -> None:
    ran: list[int] = []

    def finish(order: str) -> Refund:
        ran.append(1)
        return Refund(order=order)

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from pydantic_ai import InstrumentationSettings

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def model(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"order": "A-1"}, tool_call_id="o")])

    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        assert Agent(FunctionModel(model), output_type=finish).run_sync("u").output == Refund(order="A-1")
    finally:
        Agent.instrument_all(False)
    assert ran == [1]
    mine: Agent[Any, Any] = Agent(FunctionModel(lambda *_: trap.spring("the model")), output_type=finish)
    with replaying(exporter.get_finished_spans()) as run:
        assert mine.run_sync("u").output == Refund(order="A-1")
    assert run.not_reached == ()

    async def main() -> Any:
        async with mine.run_stream("u") as stream:
            return await stream.get_output()

    with replaying(exporter.get_finished_spans()):
        assert asyncio.run(main()) == Refund(order="A-1")
    assert ran == [1]


def test_an_output_function_that_takes_text_is_answered_too(trap: Trap) -> None:
    from pydantic_ai import TextOutput

    made = Making()
    made.chat("01" * 8, [user("u")], [says("hello")])
    made.tool("02" * 8, calls("shout", "hello"), "HELLO")

    def shout(text: str) -> str:
        trap.spring("shout")

    mine: Agent[Any, Any] = Agent(FunctionModel(lambda *_: trap.spring("the model")), output_type=TextOutput(shout))
    with replaying(made.plan()):
        assert mine.run_sync("u").output == "HELLO"
    unrecorded = Making()
    unrecorded.chat("01" * 8, [user("u")], [says("hello")])
    with pytest.raises(ReplayDivergence, match="shout"), replaying(unrecorded.plan()):
        mine.run_sync("u")


@pytest.mark.parametrize("streams", [False, True])
def test_a_live_stream_reaches_the_application_in_its_pieces_and_is_compared(streams: bool, trap: Trap) -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], [says("one two")])

    async def pieces(messages: Any, info: Any) -> Any:
        for piece in ("one", " ", "two") if not streams else ("one", " ", "three"):
            yield piece

    async def main() -> list[str]:
        async with mine.run_stream("u") as stream:
            return [text async for text in stream.stream_text(delta=True, debounce_by=None)]

    mine = Agent(FunctionModel(stream_function=pieces))
    if not streams:
        with replaying(made.plan(), models="live"):
            assert asyncio.run(main()) == ["one", " ", "two"]
        return
    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan(), models="live"):
        asyncio.run(main())
    assert (caught.value.node, caught.value.where) == (made.nodes[0].key, "output")


def test_tokens_are_not_counted_by_the_provider(trap: Trap) -> None:
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.usage import UsageLimits

    class Counting(WrapperModel):
        async def count_tokens(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("count_tokens")

    mine = agent(trap)
    mine.model = Counting(FunctionModel(lambda *_: trap.spring("the model")))
    with replaying(retrievals().plan()):
        limits = UsageLimits(count_tokens_before_request=True, input_tokens_limit=10)
        assert mine.run_sync("compare them", usage_limits=limits).output == "the answer"


def test_a_recorded_failure_of_a_model_is_of_its_own_class(trap: Trap) -> None:
    from pydantic_ai.exceptions import ModelHTTPError
    from support.plans import failure

    made = Making()
    text = "status_code: 503, model_name: some, body: None"
    made.chat("01" * 8, [user("u")], failure("pydantic_ai.exceptions.ModelHTTPError", text))
    with replaying(made.plan()), pytest.raises(ModelHTTPError) as caught:
        agent(trap).run_sync("u")
    assert str(caught.value) == text
    with pytest.raises(AttributeError, match="status_code of this ModelHTTPError is not recorded"):
        assert caught.value.status_code


@pytest.mark.parametrize(
    ("owner", "name"),
    [(StreamedResponse, "get"), (StreamedResponse, "_get_event_iterator")],
)
def test_a_version_without_what_the_hook_calls_is_refused_before_anything_runs(
    owner: type, name: str, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(ReplayRefusedError, match=name), replaying(retrievals().plan()):
        trap.spring("the block")


def test_a_version_whose_model_cannot_be_overridden_is_refused_before_anything_runs(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "override", lambda self: None)
    with pytest.raises(ReplayRefusedError, match="override has no model"), replaying(retrievals().plan()):
        trap.spring("the block")


def test_a_version_that_keeps_the_overriding_model_elsewhere_is_refused(trap: Trap) -> None:
    mine = agent(trap)
    del mine._override_model
    with pytest.raises(ReplayRefusedError, match="overridden"), replaying(retrievals().plan()):
        swallow(mine)
