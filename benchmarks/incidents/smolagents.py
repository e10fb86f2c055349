# SPDX-License-Identifier: Apache-2.0
"""Incidents of smolagents: real agents, scripted models."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from smolagents import ChatMessage, CodeAgent, LogLevel, Model, Tool, ToolCallingAgent, local_python_executor, tool
from smolagents.models import (
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
)

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Body, Late, loses_first, only_o9_works, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World
from benchmarks.incidents.other_process import die_unseen, dies_unseen, in_two_processes, main, pays_and_dies, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, Call, Turn, both, next_turn, once

CODE_HAS_DEADLINES = hasattr(local_python_executor, "ThreadPoolExecutor")
"""From 1.24 on."""

END = 'final_answer("done")'
"""The last piece of code."""


class Script(Model):
    """A model that does what it is told to, turn by turn, and keeps what it was sent; a text is code."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__(model_id="script")
        self.turns = list(turns)
        self.seen: list[str] = []

    def generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatMessage:
        self.seen.append("\n".join(str(message.content) for message in messages))
        turn = next_turn(self.turns)
        if isinstance(turn, str):
            return ChatMessage(role="assistant", content=f"Thought: go on\n<code>\n{turn}\n</code>")
        calls = [
            ChatMessageToolCall(
                id=call_id, type="function", function=ChatMessageToolCallFunction(name=name, arguments=given)
            )
            for call_id, name, given in turn
        ]
        return ChatMessage(role="assistant", content="", tool_calls=calls)

    def generate_stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        message = self.generate(messages)
        calls = [
            ChatMessageToolCallStreamDelta(
                index=index,
                id=call.id,
                type="function",
                function=ChatMessageToolCallFunction(name=call.function.name, arguments=json.dumps(call.function.arguments)),
            )
            for index, call in enumerate(message.tool_calls or ())
        ]
        yield ChatMessageStreamDelta(content=message.content, tool_calls=calls or None)


def answers(text: str) -> list[Call]:
    """The last word of an agent that calls tools, which is a call, too."""
    return [("call_f1n", "final_answer", {"answer": text})]


def agent(turns: Sequence[Turn], *tools: Any, **kwargs: Any) -> ToolCallingAgent:
    model = Script([answers(turn) if isinstance(turn, str) else turn for turn in turns])
    return ToolCallingAgent(tools=list(tools), model=model, verbosity_level=LogLevel.OFF, **kwargs)


def coder(code: Sequence[Turn], *tools: Any, **kwargs: Any) -> CodeAgent:
    return CodeAgent(tools=list(tools), model=Script(code), verbosity_level=LogLevel.OFF, **kwargs)


class Refund(Tool):
    """The tool of all stories."""

    name = "refund"
    description = "Refund an order."
    inputs = {"order": {"type": "string", "description": "Which one."}}
    output_type = "string"

    def __init__(self, body: Callable[[str], str]) -> None:
        super().__init__()
        self.body = body

    def forward(self, order: str) -> str:
        return self.body(order)


def tool_of(body: Body, kind: str = "class") -> Any:
    """A tool of that body, made in one of smolagents' ways."""

    @tool
    def refund(order: str) -> str:
        """Refund an order.

        Args:
            order: Which one.
        """
        return body(order)

    return refund if kind == "function" else Refund(body)


def refund_that_fails(world: World, kind: str = "class") -> Any:
    return tool_of(loses_first(world), kind)


def refund_that_works(world: World, kind: str = "class") -> Any:
    return tool_of(pays_in_thread(world), kind)


def told(body: Callable[[World], Body], turns: Sequence[Turn], kind: str = "class") -> Callable[[World], None]:
    """One run of an agent that calls a tool of that body."""

    def tell(world: World) -> None:
        with world.scope("o1"):
            agent(turns, tool_of(body(world), kind)).run("Refund order o1")

    return tell


def in_code(body: Callable[[World], Body], *code: str, kind: str = "class", **more: Any) -> Callable[[World], None]:
    """One run of an agent that writes code, which calls a tool of that body."""

    def tell(world: World) -> None:
        with world.scope("o1"):
            coder([*code, END], tool_of(body(world), kind), **more).run("Refund order o1")

    return tell


CALL = 'print(refund("o1"))'
LOOP = """
for attempt in range(2):
    try:
        print(refund("o1"))
        break
    except Exception as error:
        print(error)
"""
BOTH = 'first = refund("o9")\nsecond = refund("oX")\nprint(first, second)'

new_id = told(loses_first, scripts.AGAIN)
twins = told(pays_in_thread, scripts.TWINS)
later_turn = told(pays_in_thread, scripts.AGAIN)
later_code = in_code(pays_in_thread, CALL, CALL)
bad_arguments = told(pays_in_thread, scripts.BAD_ARGUMENTS)


def streamed(world: World) -> None:
    with world.scope("o1"):
        for _ in agent(scripts.AGAIN, refund_that_fails(world), stream_outputs=True).run("Refund order o1", stream=True):
            pass


def called_directly(world: World) -> None:
    """No model: the application itself tries again."""
    made = refund_that_fails(world)
    with world.scope("o1"):
        for _ in range(2):
            with suppress(ConnectionError):
                made(order="o1")


def _slow(world: World) -> Body:
    """The code's time is over before the tool has its answer."""

    def slowly(order: str) -> str:
        world.commit(order)
        threading.Event().wait(1.2)
        return "late"

    return slowly


def late_in_thread(world: World) -> None:
    """A tool commits in its thread while the next run asks for the same."""
    late = Late(world)
    first, again = (partial(agent(once(call_id), tool_of(late.refund)).run, "Refund") for call_id in (FIRST, SECOND))
    with world.scope("o1"):
        late.is_run_beside(first, again)


def dies(world: World) -> None:
    """A call is paid, another's answer is lost, the model cannot be reached; the application runs it again."""
    refund = tool_of(only_o9_works(world))
    with world.scope("o1"):
        for run, end in (("a1", ConnectionError("the model is gone")), ("b2", "done")):
            paid, lost = both(run)
            with suppress(Exception):
                agent([[lost], [paid], end], refund).run("Refund")


def delegated_again(world: World) -> None:
    """An agent asks the one that it manages for the same thing in other words, as the first answer was an error."""
    refunder = agent(scripts.INNER, refund_that_fails(world), name="refunder", description="Refunds orders.")
    turns = scripts.delegations("refunder", "task", additional_args={})
    with world.scope("o1"):
        agent(turns, managed_agents=[refunder]).run("Refund order o1")


def _killed(step: str, folder: Path) -> None:
    """A process dies in the middle of a call, and another one runs the agent again."""
    with World().scope("o1"):
        agent(once(f"toolu_{step}"), tool_of(pays_and_dies(step, folder))).run("Refund order o1")


def _killed_later(step: str, folder: Path) -> None:
    with World().scope("o9"):
        agent(dies_unseen(step), tool_of(pays_there(folder))).run("Refund order o9")


def _code_killed_later(step: str, folder: Path) -> None:
    code = [CALL, die_unseen if step == "first" else END]
    with World().scope("o1"):
        coder(code, tool_of(pays_there(folder))).run("Refund order o1")


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "Tool", new_id, 2, 1),
    Incident(Story.NEW_ID, "@tool", told(loses_first, scripts.AGAIN, "function"), 2, 1),
    Incident(Story.NEW_ID, "in code, Tool", in_code(loses_first, CALL, 'print(refund(order="o1"))'), 2, 1),
    Incident(Story.NEW_ID, "in code, @tool", in_code(loses_first, CALL, CALL, kind="function"), 2, 1),
    Incident(Story.TRIED_AGAIN, "by a loop in code", in_code(loses_first, LOOP), 2, 1),
    Incident(Story.SAME_ID, "", told(loses_first, scripts.SAME_ID), 2, 1),
    Incident(Story.RUN_AGAIN, "the tool directly", called_directly, 2, 1),
    *(
        [Incident(Story.TIMED_OUT, "in code", in_code(_slow, CALL, CALL, executor_kwargs={"timeout_seconds": 1}), 2, 1)]
        if CODE_HAS_DEADLINES
        else []
    ),
    Incident(Story.LATE, "", late_in_thread, 2, 1),
    Incident(Story.STREAMED, "", streamed, 2, 1),
    Incident(Story.PARALLEL, "", told(pays_in_thread, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.TWINS, "", twins, 2, 2),
    Incident(Story.TWINS, "in code", in_code(pays_in_thread, 'print(refund("o1"), refund(order="o1"))'), 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.LATER_TURN, "in code", later_code, 2, 2),
    Incident(Story.DIES, "the step only", told(only_o9_works, [both("a1"), both("b2"), "done"]), 4, 2),
    Incident(Story.DIES, "the step only, in code", in_code(only_o9_works, BOTH, BOTH), 4, 2),
    Incident(Story.DIES, "", dies, 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("smolagents"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("smolagents", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "in code", in_two_processes("smolagents", "code_killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
    Incident(Story.BAD_ARGUMENTS, "in code", in_code(pays_in_thread, 'refund(ordr="o1")', "refund()"), 0, 0),
)


if __name__ == "__main__":
    main({"killed": _killed, "killed_later": _killed_later, "code_killed_later": _code_killed_later})
