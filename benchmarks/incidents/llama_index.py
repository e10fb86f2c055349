# SPDX-License-Identifier: Apache-2.0
"""Incidents of LlamaIndex: real agents and workflows, scripted models."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool, ToolSelection
from llama_index.core.utils import get_tokenizer
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, JsonPickleSerializer

from benchmarks.incidents.kit import Incident, Story, World
from benchmarks.incidents.other_process import die, in_two_processes, land, main

Turn = str | list[tuple[str, str, dict[str, Any]]] | Exception
"""What a scripted model does: answer, call tools (id, name, arguments), or fail."""

ORDER = {"order": "o7"}


class Script(FunctionCallingLLM):
    """A model that does what it is told to, turn by turn, and keeps what it was sent."""

    turns: list[Any]
    seen: list[list[ChatMessage]] = []

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name="script")

    def _next(self, messages: Sequence[ChatMessage]) -> ChatResponse:
        self.seen.append(list(messages))
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        calls = [] if isinstance(turn, str) else turn
        text = turn if isinstance(turn, str) else ""
        message = ChatMessage(role=MessageRole.ASSISTANT, content=text, additional_kwargs={"tool_calls": calls})
        return ChatResponse(message=message, delta=text, raw={})

    def _prepare_chat_with_tools(self, tools: Any, chat_history: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"messages": list(chat_history or [])}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        calls = response.message.additional_kwargs.get("tool_calls", [])
        return [ToolSelection(tool_id=call_id, tool_name=name, tool_kwargs=given) for call_id, name, given in calls]

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self._next(messages)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        async def stream() -> Any:
            yield self._next(messages)

        return stream()

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._next(messages)

    def stream_chat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    complete = stream_complete = acomplete = astream_complete = stream_chat


class Writer(CustomLLM):
    """A model that writes texts, for agents that read their calls from text."""

    texts: list[str]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="writer")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        from llama_index.core.llms import CompletionResponse

        return CompletionResponse(text=self.texts.pop(0))

    def stream_complete(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def agent(turns: list[Turn], *tools: Callable[..., Any], streaming: bool = False, **kwargs: Any) -> FunctionAgent:
    return FunctionAgent(llm=Script(turns=turns), tools=list(tools), streaming=streaming, **kwargs)


def refund_that_fails(world: World, sync: bool = False) -> Callable[..., Any]:
    """A tool that refunds; its answer is lost the first time."""
    times: list[str] = []

    def refund(order: str) -> str:
        """Refund an order."""
        times.append(order)
        return world.commit_then_fail(order) if times.count(order) == 1 else world.commit(order)

    async def arefund(order: str) -> str:
        """Refund an order."""
        return refund(order)

    return refund if sync else FunctionTool.from_defaults(async_fn=arefund, name="refund")


def refund_that_works(world: World, sync: bool = False) -> Callable[..., Any]:
    def refund(order: str) -> str:
        """Refund an order."""
        return world.commit(order)

    async def arefund(order: str) -> str:
        """Refund an order."""
        return world.commit(order)

    return refund if sync else FunctionTool.from_defaults(async_fn=arefund, name="refund")


def again(first: str = "call_8sd7a", second: str = "call_1kf03") -> list[Turn]:
    return [[(first, "refund", ORDER)], [(second, "refund", ORDER)], "done"]


def run(made: Any, **kwargs: Any) -> str:
    async def main() -> str:
        return str(await made.run(user_msg="Refund order o7", **kwargs))

    return asyncio.run(main())


def new_id(world: World, sync: bool = False) -> None:
    with world.scope("o7"):
        run(agent(again(), refund_that_fails(world, sync)))


def same_id(world: World) -> None:
    with world.scope("o7"):
        run(agent(again("call_8sd7a", "call_8sd7a"), refund_that_fails(world)))


def workflow(world: World) -> None:
    with world.scope("o7"):
        run(AgentWorkflow(agents=[agent(again(), refund_that_fails(world), name="a", description="a")]))


def handled_by_react(world: World) -> None:
    action = 'Thought: I need a tool.\nAction: refund\nAction Input: {"order": "o7"}'
    writer = Writer(texts=[action, action, "Thought: I can answer.\nAnswer: done"])
    with world.scope("o7"):
        run(ReActAgent(llm=writer, tools=[refund_that_fails(world)], streaming=False))


def app_runs_again(world: World) -> None:
    """Two runs with one memory, which knows the conversation."""
    memory = Memory.from_defaults(session_id="conversation-7")
    refund = refund_that_fails(world)
    for call_id in ("call_8sd7a", "call_1kf03"):
        run(agent([[(call_id, "refund", ORDER)], "done"], refund), memory=memory)


def cancelled(world: World) -> None:
    """The run is cancelled after the commit, and the application runs it again."""

    async def main() -> None:
        committed = asyncio.Event()

        async def refund(order: str) -> str:
            """Refund an order."""
            world.commit(order)
            committed.set()
            await asyncio.Event().wait()
            return "never"

        handler = agent([[("call_8sd7a", "refund", ORDER)]], refund).run(user_msg="Refund order o7")
        await committed.wait()
        await handler.cancel_run()
        await agent([[("call_1kf03", "refund", ORDER)], "done"], refund_that_works(world)).run(user_msg="Refund order o7")

    with world.scope("o7"):
        asyncio.run(main())


def timed_out(world: World) -> None:
    async def main() -> None:
        async def refund(order: str) -> str:
            """Refund an order."""
            world.commit(order)
            await asyncio.Event().wait()
            return "never"

        with suppress(Exception):  # the time-out, whose class has moved
            await agent([[("call_8sd7a", "refund", ORDER)]], refund, timeout=1).run(user_msg="Refund order o7")
        await agent([[("call_1kf03", "refund", ORDER)], "done"], refund_that_works(world)).run(user_msg="Refund order o7")

    with world.scope("o7"):
        asyncio.run(main())


def late_in_thread(world: World) -> None:
    """A sync tool goes on in its thread after its run was cancelled, and commits while the next run asks for the same."""
    begun, may_commit, done = threading.Event(), threading.Event(), threading.Event()

    def refund(order: str) -> str:
        """Refund an order."""
        begun.set()
        may_commit.wait(10)
        world.commit(order)
        done.set()
        return "late"

    async def main() -> None:
        handler = agent([[("call_8sd7a", "refund", ORDER)]], refund).run(user_msg="Refund order o7")
        await asyncio.to_thread(begun.wait, 10)
        await handler.cancel_run()
        await agent([[("call_1kf03", "refund", ORDER)], "done"], refund_that_works(world)).run(user_msg="Refund order o7")
        may_commit.set()
        await asyncio.to_thread(done.wait, 10)

    with world.scope("o7"):
        asyncio.run(main())


def streamed(world: World) -> None:
    async def main() -> None:
        handler = agent(again(), refund_that_fails(world), streaming=True).run(user_msg="Refund order o7")
        async for _ in handler.stream_events():
            pass
        await handler

    with world.scope("o7"):
        asyncio.run(main())


def parallel(world: World, sync: bool = False) -> None:
    calls = [(f"call_x{n}y", "refund", {"order": f"o{n}"}) for n in range(3)]
    with world.scope("o7"):
        run(agent([calls, "done"], refund_that_works(world, sync)))


def twins(world: World, sync: bool = False) -> None:
    with world.scope("o7"):
        run(
            agent(
                [[("call_8sd7a", "refund", ORDER), ("call_1kf03", "refund", ORDER)], "done"], refund_that_works(world, sync)
            )
        )


def later_turn(world: World) -> None:
    with world.scope("o7"):
        run(agent(again(), refund_that_works(world)))


def dies(world: World) -> None:
    """One of two parallel calls is paid, the other's answer is lost, the model cannot be reached; it is run again."""
    refund = refund_only_o9_works(world)
    with world.scope("o7"):
        for attempt in ("a", "b"):
            calls = [(f"call_9sd{attempt}", "refund", {"order": "o9"}), (f"call_kf{attempt}x", "refund", {"order": "oX"})]
            with suppress(Exception):  # workflows 1 wraps it
                run(agent([calls, ConnectionError("the model is gone") if attempt == "a" else "done"], refund))


def refund_only_o9_works(world: World) -> Callable[..., Any]:
    async def refund(order: str) -> str:
        """Refund an order."""
        return world.commit(order) if order == "o9" else world.commit_then_fail(order)

    return refund


def delegated_again(world: World) -> None:
    """An agent asks another one for the same thing in other words, as the first answer was an error."""
    refund = refund_that_fails(world)

    async def ask_refunder(request: str) -> str:
        """Ask the agent that refunds."""
        return str(await agent([[(f"call_{len(request)}q", "refund", ORDER)], "I could not."], refund).run(user_msg=request))

    turns: list[Turn] = [
        [("call_8sd7a", "ask_refunder", {"request": "refund o7"})],
        [("call_1kf03", "ask_refunder", {"request": "please refund order o7 now"})],
        "done",
    ]
    with world.scope("o7"):
        run(agent(turns, ask_refunder))


def handed_over(world: World) -> None:
    """One agent hands over to another, which asks for the same again."""
    refund = refund_that_fails(world)
    handoff = {"to_agent": "second", "reason": "it failed"}
    first = agent(
        [[("call_8sd7a", "refund", ORDER)], [("call_h1x", "handoff", handoff)]], refund, name="first", description="first"
    )
    second = agent([[("call_1kf03", "refund", ORDER)], "done"], refund, name="second", description="second")
    with world.scope("o7"):
        run(AgentWorkflow(agents=[first, second], root_agent="first"))


def approved(world: World) -> None:
    """A tool waits for a person before it does anything."""

    async def refund(ctx: Context, order: str) -> str:
        """Refund an order."""
        await ctx.wait_for_event(
            HumanResponseEvent, waiter_id="approval", waiter_event=InputRequiredEvent(prefix="Refund it?")
        )
        return world.commit(order)

    refund.__annotations__["ctx"] = Context  # by which the framework finds that parameter; a text would not do

    async def main() -> None:
        handler = agent([[("call_8sd7a", "refund", ORDER)], "done"], refund).run(user_msg="Refund order o7")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler

    with world.scope("o7"):
        asyncio.run(main())


def bad_arguments(world: World) -> None:
    turns: list[Turn] = [[("call_8sd7a", "refund", {"ordr": "o7"})], "done"]
    with world.scope("o7"):
        run(agent(turns, refund_that_works(world, True)))


# -- in another process ----------------------------------------------------------------------------------------------------


def resumed(world: World) -> None:
    """A process dies in the middle of a call, and another one goes on from the context that it had persisted."""
    in_two_processes(world, "benchmarks.incidents.llama_index", "resumed")


def _resume(step: str, folder: Path) -> None:
    with World().scope("o7"):
        asyncio.run(_resumable(step, folder))


async def _resumable(step: str, folder: Path) -> None:
    saved = folder / "context.json"
    committed = asyncio.Event()

    async def refund(order: str) -> str:
        """Refund an order."""
        land(folder, order)
        committed.set()
        if step == "first":
            await asyncio.Event().wait()
        return "done"

    first = step == "first"
    made = agent([[("call_8sd7a", "refund", ORDER)], "done"] if first else ["done"], refund)
    if first:
        handler = made.run(user_msg="Refund order o7")
        await committed.wait()
        while True:
            context = handler.ctx.to_dict(serializer=JsonPickleSerializer())
            if not _is_in_progress("parse_agent_output", context):
                break
            await asyncio.sleep(0)  # the step that asked for the call has not quite ended
        saved.write_text(json.dumps(context))
        die()
    get_tokenizer()  # finds the one that ships with LlamaIndex, of which the context holds a reference
    saved_context = json.loads(saved.read_text())
    await made.run(ctx=Context.from_dict(made, saved_context, serializer=JsonPickleSerializer()))


def _is_in_progress(step: str, context: dict[str, Any]) -> bool:
    if "workers" in context:
        return bool(context["workers"][step]["in_progress"])
    return bool(context["in_progress"].get(step))  # workflows 1


def _in(tell: Callable[..., None], **kwargs: Any) -> Callable[[World], None]:
    return lambda world: tell(world, **kwargs)


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id, 2, 1),
    Incident(Story.NEW_ID, "sync tool", _in(new_id, sync=True), 2, 1),
    Incident(Story.NEW_ID, "AgentWorkflow", workflow, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.HANDLED, "ReActAgent", handled_by_react, 2, 1),
    Incident(Story.RUN_AGAIN, "", app_runs_again, 2, 1),
    Incident(Story.CANCELLED, "", cancelled, 2, 1),
    Incident(Story.TIMED_OUT, "", timed_out, 2, 1),
    Incident(Story.LATE, "", late_in_thread, 2, 1),
    Incident(Story.STREAMED, "", streamed, 2, 1),
    Incident(Story.PARALLEL, "async tool", parallel, 3, 3),
    Incident(Story.PARALLEL, "sync tool", _in(parallel, sync=True), 3, 3),
    Incident(Story.TWINS, "async tool", twins, 2, 2),
    Incident(Story.TWINS, "sync tool", _in(twins, sync=True), 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.DIES, "", dies, 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.DELEGATED, "handed over", handed_over, 2, 1),
    Incident(Story.APPROVED, "", approved, 1, 1),
    Incident(Story.OTHER_PROCESS, "", resumed, 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
)


if __name__ == "__main__":
    main({"resumed": _resume})
