# SPDX-License-Identifier: Apache-2.0
"""Incidents of Semantic Kernel: kernels and agents with scripted models, which need no network and no key."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    StreamingChatMessageContent,
)
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import kernel_function

from benchmarks.incidents.kit import Incident, Story, World, given_up, pays, pays_in_thread
from benchmarks.incidents.other_process import die, in_two_processes, land, main

logging.getLogger("semantic_kernel").setLevel(logging.CRITICAL)


Step = str | Exception | list[tuple[str, str, dict[str, Any]]]
"""What a model answers: a text, an error, or calls with id, tool and arguments."""


class Scripted(ChatCompletionClientBase):
    """Answers as it is told to, and keeps what tools have told it."""

    SUPPORTS_FUNCTION_CALLING = True

    script: list[Any]
    heard: list[str] = []

    def __init__(self, *script: Step) -> None:
        super().__init__(ai_model_id="scripted", service_id="scripted", script=list(script))

    def _next(self, history: ChatHistory) -> dict[str, Any]:
        self.heard = [
            str(item.result)
            for message in history.messages
            for item in message.items
            if isinstance(item, FunctionResultContent)
        ]
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            return {"role": AuthorRole.ASSISTANT, "content": step}
        return {"role": AuthorRole.ASSISTANT, "items": [function_call(*one) for one in step]}

    async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> list[ChatMessageContent]:
        return [ChatMessageContent(**self._next(chat_history))]

    async def _inner_get_streaming_chat_message_contents(
        self, chat_history: Any, settings: Any, function_invoke_attempt: int = 0
    ) -> AsyncGenerator[list[StreamingChatMessageContent], Any]:
        yield [StreamingChatMessageContent(choice_index=0, **self._next(chat_history))]

    def _verify_function_choice_settings(self, settings: Any) -> None: ...

    def _update_function_choice_settings_callback(self) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def _reset_function_choice_settings(self, settings: Any) -> None: ...


def function_call(call_id: str, name: str, arguments: dict[str, Any]) -> FunctionCallContent:
    """A call as a model proposes it."""
    return FunctionCallContent(id=call_id, name=f"shop-{name}", arguments=json.dumps(arguments))


def refund(call_id: str, order: str = "o1") -> tuple[str, str, dict[str, Any]]:
    """A call of the tool `refund`."""
    return call_id, "refund", {"order": order}


def agent(model: Scripted, tool: Callable[..., Any]) -> ChatCompletionAgent:
    """An agent whose plugin `shop` has one tool."""
    return ChatCompletionAgent(service=model, name="refunder", kernel=kernel(tool))


def kernel(tool: Callable[..., Any]) -> Kernel:
    """A kernel whose plugin `shop` has one tool."""
    made = Kernel()
    made.add_function("shop", kernel_function(tool))
    return made


def asked_again() -> Scripted:
    """A model that asks again when it hears of a failure."""
    return Scripted([refund("c1")], [refund("c2")], "done")


def run(world: World, *agents: ChatCompletionAgent) -> None:
    """Run agents one after the other, whatever becomes of each, in one conversation."""

    async def story() -> None:
        for one in agents:
            try:
                await one.get_response("refund o1")
            except ConnectionError:
                continue

    with world.scope("conversation-1"):
        asyncio.run(story())


def _async_tool(world: World) -> None:
    run(world, agent(asked_again(), pays(world, once=True)))


def _sync_tool(world: World) -> None:
    run(world, agent(asked_again(), pays_in_thread(world, once=True)))


def _generator(world: World) -> None:
    async def refund(order: str) -> AsyncGenerator[str, None]:
        yield "paying"
        yield world.commit_then_fail(order) if not world.effects else world.commit(order)

    run(world, agent(asked_again(), refund))


def _streamed(world: World) -> None:
    async def consume() -> None:
        async for _ in agent(asked_again(), pays(world, once=True)).invoke_stream("refund o1"):
            pass

    with world.scope("conversation-1"):
        asyncio.run(consume())


def _same_id(world: World) -> None:
    again = [refund("call_Vq3ZkPw8sT")]
    run(world, agent(Scripted(again, again, "done"), pays(world, once=True)))


def _filter(world: World) -> None:
    async def twice(context: Any, next: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await next(context)
        except ConnectionError:
            await next(context)

    one = agent(Scripted([refund("c1")], "done"), pays(world, once=True))
    one.kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, twice)
    run(world, one)


def _timed_out(world: World) -> None:
    call = globals()["refund"]

    async def refund(order: str) -> str:
        world.commit(order)
        if len(world.effects) == 1:
            await asyncio.Event().wait()
        return "paid"

    async def story() -> None:
        try:
            await given_up(agent(Scripted([call("c1")]), refund).get_response("refund o1"), world.effects)
        except TimeoutError:
            await agent(Scripted([call("c2")], "done"), refund).get_response("refund o1")

    with world.scope("conversation-1"):
        asyncio.run(story())


def late(world: World, later: bool = False) -> None:
    """The run is given up while its tool is in a thread of its own, which pays when another run has been; or yet another."""
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()
    call = globals()["refund"]

    def pay(order: str) -> str:
        if begun.is_set():
            return world.commit(order)
        begun.set()
        go_on.wait()
        try:
            return world.commit(order)
        finally:
            over.set()

    async def refund(order: str) -> str:
        return await asyncio.to_thread(pay, order)

    async def story() -> None:
        first = asyncio.create_task(agent(Scripted([call("c1")]), refund).get_response("refund o1"))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        await asyncio.wait([first])
        await agent(Scripted([call("c2")], "done"), refund).get_response("refund o1")
        go_on.set()
        await asyncio.to_thread(over.wait)
        if later:
            await agent(Scripted([call("c3")], "done"), refund).get_response("refund o1")

    with world.scope("conversation-1"):
        asyncio.run(story())


def _late_and_later(world: World) -> None:
    late(world, later=True)


def _parallel(world: World) -> None:
    model = Scripted([refund("c1", "o1"), refund("c2", "o2"), refund("c3", "o3")], "done")
    run(world, agent(model, pays(world)))


def _parallel_sync(world: World) -> None:
    model = Scripted([refund("c1", "o1"), refund("c2", "o2"), refund("c3", "o3")], "done")
    run(world, agent(model, pays_in_thread(world)))


def _twins(world: World) -> None:
    run(world, agent(Scripted([refund("c1"), refund("c2")], "done"), pays(world)))


def _twins_own_ids(world: World) -> None:
    run(world, agent(Scripted([refund("call_Vq3ZkPw8sT"), refund("call_Mx71LdYb0R")], "done"), pays_in_thread(world)))


def _later_turn(world: World) -> None:
    one = agent(Scripted([refund("c1")], "done", [refund("c1")], "done"), pays(world))
    run(world, one, one)


def _run_dies(world: World) -> None:
    both = [refund("c1", "o9"), refund("c2", "oX")]
    first = agent(Scripted(both, ConnectionError("the model is down")), pays(world))
    again = agent(Scripted([refund("c3", "o9"), refund("c4", "oX")], "done"), pays(world))
    run(world, first, again)


def _agent_as_tool(world: World) -> None:
    script = Scripted([refund("m1")], "it failed", [refund("m2")], "done")
    payer = agent(script, pays(world, once=True))

    async def delegate(task: str) -> str:
        return str(await payer.get_response(task))

    model = Scripted(
        [("d1", "delegate", {"task": "refund o1"})], [("d2", "delegate", {"task": "please do refund o1"})], "done"
    )
    run(world, agent(model, delegate))


def _approval(world: World) -> None:
    """A filter does not let a call run before a person has agreed, after which it comes again under the same id."""
    asked: list[str] = []

    async def approves(context: Any, next: Callable[[Any], Awaitable[None]]) -> None:
        asked.append(context.function.name)
        if len(asked) > 1:
            await next(context)

    one = agent(Scripted([refund("call_Vq3ZkPw8sT")], [refund("call_Vq3ZkPw8sT")], "done"), pays(world))
    one.kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, approves)
    run(world, one)


def _bad_arguments(world: World) -> None:
    def refund(cents: int) -> str:
        return world.commit(str(cents))

    bad = ("refund", {"cents": "many"})
    run(world, agent(Scripted([("c1", *bad)], [("c2", *bad)], "done"), refund))


def _without_auto(world: World) -> None:
    """An application that runs the calls itself, and once more where it did not get an answer."""

    async def story() -> None:
        model = Scripted([refund("call_Vq3ZkPw8sT")])
        own, history = kernel(pays(world, once=True)), ChatHistory()
        by_hand = PromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto(auto_invoke=False))
        history.add_message((await model.get_chat_message_contents(history, by_hand, kernel=own))[0])
        for _ in range(2):
            await own.invoke_function_call(history.messages[0].items[0], history)

    with world.scope("conversation-1"):
        asyncio.run(story())


def _other_process(world: World) -> None:
    in_two_processes(world, "benchmarks.incidents.semantic_kernel", "killed")


def _killed(step: str, folder: Path) -> None:
    """Both go on with a stored chat history: the first process pays and dies of it."""
    stored = folder / "history.json"
    if step == "first":
        proposed = ChatHistory()
        calls = [function_call(*refund("call_Vq3ZkPw8sT"))]
        proposed.add_message(ChatMessageContent(role=AuthorRole.ASSISTANT, items=calls))
        stored.write_text(proposed.serialize())

    async def pay(order: str) -> str:
        land(folder, order)
        if step == "first":
            die()
        return "paid"

    pay.__name__ = "refund"
    history = ChatHistory.restore_chat_history(stored.read_text())
    with World().scope("conversation-1"):
        asyncio.run(kernel(pay).invoke_function_call(history.messages[0].items[0], history))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async function", _async_tool, 2, 1),
    Incident(Story.NEW_ID, "sync function", _sync_tool, 2, 1),
    Incident(Story.NEW_ID, "async generator", _generator, 2, 1),
    Incident(Story.STREAMED, "", _streamed, 2, 1),
    Incident(Story.SAME_ID, "", _same_id, 2, 1),
    Incident(Story.RUN_AGAIN, "without auto-invocation", _without_auto, 2, 1),
    Incident(Story.TRIED_AGAIN, "by a filter", _filter, 2, 1),
    Incident(Story.TIMED_OUT, "", _timed_out, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.LATE, "and once more", _late_and_later, 3, 1),
    Incident(Story.PARALLEL, "async function", _parallel, 3, 3),
    Incident(Story.PARALLEL, "sync function", _parallel_sync, 3, 3),
    Incident(Story.TWINS, "", _twins, 2, 2),
    Incident(Story.TWINS, "with ids of their own, sync function", _twins_own_ids, 2, 2),
    Incident(Story.LATER_TURN, "", _later_turn, 2, 2),
    Incident(Story.DIES, "", _run_dies, 4, 2),
    Incident(Story.DELEGATED, "", _agent_as_tool, 2, 1),
    Incident(Story.APPROVED, "", _approval, 1, 1),
    Incident(Story.OTHER_PROCESS, "", _other_process, 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", _bad_arguments, 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed})
