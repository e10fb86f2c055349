# SPDX-License-Identifier: Apache-2.0
"""Incidents of Semantic Kernel: kernels and agents with scripted models, which need no network and no key."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
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

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Late, hangs_first, on_the_loop, pays, pays_cents, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, one_by_one, run_again
from benchmarks.incidents.other_process import dies_unseen, in_two_processes, main, pays_and_dies, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, THIRD, Script, Turn, next_turn, once, refund

logging.getLogger("semantic_kernel").setLevel(logging.CRITICAL)


class Scripted(ChatCompletionClientBase):
    """Answers as it is told to, and keeps what tools have told it."""

    SUPPORTS_FUNCTION_CALLING = True

    script: list[Any]
    heard: list[str] = []

    def __init__(self, *script: Turn) -> None:
        super().__init__(ai_model_id="scripted", service_id="scripted", script=list(script))

    def _next(self, history: ChatHistory) -> dict[str, Any]:
        self.heard = [
            str(item.result)
            for message in history.messages
            for item in message.items
            if isinstance(item, FunctionResultContent)
        ]
        turn = next_turn(self.script)
        if isinstance(turn, str):
            return {"role": AuthorRole.ASSISTANT, "content": turn}
        return {"role": AuthorRole.ASSISTANT, "items": [function_call(*one) for one in turn]}

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


def agent(model: Scripted, tool: Callable[..., Any]) -> ChatCompletionAgent:
    """An agent whose plugin `shop` has one tool."""
    return ChatCompletionAgent(service=model, name="refunder", kernel=kernel(tool))


def kernel(tool: Callable[..., Any]) -> Kernel:
    """A kernel whose plugin `shop` has one tool."""
    made = Kernel()
    made.add_function("shop", kernel_function(tool))
    return made


def run(world: World, *agents: ChatCompletionAgent) -> None:
    """Run agents one after the other, whatever becomes of each, in one conversation."""
    one_by_one(world, *(partial(one.get_response, "refund o1") for one in agents))


def told(body: Callable[[World], Any], *runs: Script) -> Callable[[World], None]:
    """Runs of an agent whose tool has that body, one for each script of its model."""
    return lambda world: run(world, *(agent(Scripted(*script), body(world)) for script in runs))


def asks(call_id: str, tool: Any) -> Any:
    """Begin a run of an agent whose model asks for one refund."""
    return agent(Scripted(*once(call_id)), tool).get_response("refund o1")


def _generator(world: World) -> None:
    async def refund(order: str) -> AsyncGenerator[str, None]:
        yield "paying"
        yield world.commit_then_fail(order) if not world.effects else world.commit(order)

    run(world, agent(Scripted(*scripts.AGAIN), refund))


def _streamed(world: World) -> None:
    async def consume() -> None:
        async for _ in agent(Scripted(*scripts.AGAIN), pays(world, once=True)).invoke_stream("refund o1"):
            pass

    with world.scope("conversation-1"):
        asyncio.run(consume())


def _filter(world: World) -> None:
    async def twice(context: Any, next: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await next(context)
        except ConnectionError:
            await next(context)

    one = agent(Scripted(*once()), pays(world, once=True))
    one.kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, twice)
    run(world, one)


def _timed_out(world: World) -> None:
    refund = hangs_first(world)
    with world.scope("conversation-1"):
        asyncio.run(run_again(world.effects, lambda: asks(FIRST, refund), lambda: asks(SECOND, refund)))


def late(world: World, later: bool = False) -> None:
    """The run is given up while its tool is in a thread of its own, which pays when another run has been; or yet another."""
    tool = Late(world)

    async def refund(order: str) -> str:
        return await asyncio.to_thread(tool.refund, order)

    async def story() -> None:
        await tool.is_run_again(lambda: asks(FIRST, refund), lambda: asks(SECOND, refund))
        if later:
            await asks(THIRD, refund)

    with world.scope("conversation-1"):
        asyncio.run(story())


def _later_turn(world: World) -> None:
    """Under the same id, as models have it that only count their calls."""
    one = agent(Scripted(*once("c1"), *once("c1")), pays(world))
    run(world, one, one)


def _agent_as_tool(world: World) -> None:
    payer = agent(Scripted(*scripts.INNER), pays(world, once=True))

    async def delegate(task: str) -> str:
        return str(await payer.get_response(task))

    run(world, agent(Scripted(*scripts.delegations("delegate", "task")), delegate))


def _approval(world: World) -> None:
    """A filter does not let a call run before a person has agreed, after which it comes again under the same id."""
    asked: list[str] = []

    async def approves(context: Any, next: Callable[[Any], Awaitable[None]]) -> None:
        asked.append(context.function.name)
        if len(asked) > 1:
            await next(context)

    one = agent(Scripted(*scripts.SAME_ID), pays(world))
    one.kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, approves)
    run(world, one)


def _without_auto(world: World) -> None:
    """An application that runs the calls itself, and once more where it did not get an answer."""

    async def story() -> None:
        model = Scripted(*once())
        own, history = kernel(pays(world, once=True)), ChatHistory()
        by_hand = PromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto(auto_invoke=False))
        history.add_message((await model.get_chat_message_contents(history, by_hand, kernel=own))[0])
        for _ in range(2):
            await own.invoke_function_call(history.messages[0].items[0], history)

    with world.scope("conversation-1"):
        asyncio.run(story())


def _killed(step: str, folder: Path) -> None:
    """Both go on with a stored chat history: the first process pays and dies of it."""
    stored = folder / "history.json"
    if step == "first":
        proposed = ChatHistory()
        proposed.add_message(ChatMessageContent(role=AuthorRole.ASSISTANT, items=[function_call(*refund(FIRST))]))
        stored.write_text(proposed.serialize())
    history = ChatHistory.restore_chat_history(stored.read_text())
    pay = on_the_loop(pays_and_dies(step, folder))
    with World().scope("conversation-1"):
        asyncio.run(kernel(pay).invoke_function_call(history.messages[0].items[0], history))


def _killed_later(step: str, folder: Path) -> None:
    run(World(), agent(Scripted(*dies_unseen(step)), on_the_loop(pays_there(folder))))


COUNTED_TWINS: Script = ([refund("c1"), refund("c2")], "done")

INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async function", told(partial(pays, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "sync function", told(partial(pays_in_thread, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "async generator", _generator, 2, 1),
    Incident(Story.STREAMED, "", _streamed, 2, 1),
    Incident(Story.SAME_ID, "", told(partial(pays, once=True), scripts.SAME_ID), 2, 1),
    Incident(Story.RUN_AGAIN, "without auto-invocation", _without_auto, 2, 1),
    Incident(Story.TRIED_AGAIN, "by a filter", _filter, 2, 1),
    Incident(Story.TIMED_OUT, "", _timed_out, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.LATE, "and once more", partial(late, later=True), 3, 1),
    Incident(Story.PARALLEL, "async function", told(pays, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.PARALLEL, "sync function", told(pays_in_thread, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.TWINS, "", told(pays, COUNTED_TWINS), 2, 2),
    Incident(Story.TWINS, "with ids of their own, sync function", told(pays_in_thread, scripts.TWINS), 2, 2),
    Incident(Story.LATER_TURN, "", _later_turn, 2, 2),
    Incident(Story.DIES, "", told(pays, *scripts.dies()), 4, 2),
    Incident(Story.DELEGATED, "", _agent_as_tool, 2, 1),
    Incident(Story.APPROVED, "", _approval, 1, 1),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("semantic_kernel"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("semantic_kernel", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", told(pays_cents, scripts.BAD_CENTS), 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed, "killed_later": _killed_later})
