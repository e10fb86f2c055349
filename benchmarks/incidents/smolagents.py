# SPDX-License-Identifier: Apache-2.0
"""Incidents of smolagents: real agents, scripted models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

from smolagents import ChatMessage, CodeAgent, LogLevel, Model, Tool, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
)

from benchmarks.incidents.kit import Incident, Story, World, count
from genai_processor.guard.hooks import active

Turn = str | list[tuple[str, str, dict[str, Any]]] | Exception
"""What a scripted model does: write code, call tools (id, name, arguments), or fail."""

ORDER = {"order": "o7"}
DONE: list[tuple[str, str, dict[str, Any]]] = [("call_f1n", "final_answer", {"answer": "done"})]


class Script(Model):
    """A model that does what it is told to, turn by turn, and keeps what it was sent."""

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__(model_id="script")
        self.turns = turns
        self.seen: list[str] = []

    def _next(self, messages: Any) -> Turn:
        self.seen.append("\n".join(str(message.content) for message in messages))
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn

    def generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatMessage:
        turn = self._next(messages)
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


def agent(turns: list[Turn], *tools: Any, **kwargs: Any) -> ToolCallingAgent:
    return ToolCallingAgent(tools=list(tools), model=Script(turns), verbosity_level=LogLevel.OFF, **kwargs)


def coder(turns: list[Turn], *tools: Any, **kwargs: Any) -> CodeAgent:
    return CodeAgent(tools=list(tools), model=Script(turns), verbosity_level=LogLevel.OFF, **kwargs)


def refund_that_fails(world: World, kind: str = "class") -> Any:
    """A tool that refunds; its answer is lost the first time."""
    times: list[str] = []

    def once(order: str) -> str:
        times.append(order)
        return world.commit_then_fail(order) if times.count(order) == 1 else world.commit(order)

    return _tool(once, kind)


def refund_that_works(world: World, kind: str = "class") -> Any:
    return _tool(world.commit, kind)


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


def _tool(body: Callable[[str], str], kind: str) -> Any:
    @tool
    def refund(order: str) -> str:
        """Refund an order.

        Args:
            order: Which one.
        """
        return body(order)

    return refund if kind == "function" else Refund(body)


def again(first: str = "call_8sd7a", second: str = "call_1kf03") -> list[Turn]:
    return [[(first, "refund", ORDER)], [(second, "refund", ORDER)], DONE]


def new_id(world: World, kind: str = "class") -> None:
    with world.scope("o7"):
        agent(again(), refund_that_fails(world, kind)).run("Refund order o7")


def same_id(world: World) -> None:
    with world.scope("o7"):
        agent(again("call_8sd7a", "call_8sd7a"), refund_that_fails(world)).run("Refund order o7")


def streamed(world: World) -> None:
    with world.scope("o7"):
        for _ in agent(again(), refund_that_fails(world), stream_outputs=True).run("Refund order o7", stream=True):
            pass


def in_code(world: World, kind: str = "class") -> None:
    with world.scope("o7"):
        coder(
            ['print(refund("o7"))', 'print(refund(order="o7"))', 'final_answer("done")'], refund_that_fails(world, kind)
        ).run("Refund order o7")


LOOP = """
for attempt in range(2):
    try:
        print(refund("o7"))
        break
    except Exception as error:
        print(error)
"""


def loop_in_code(world: World) -> None:
    """The code that the model wrote tries again by itself."""
    with world.scope("o7"):
        coder([LOOP, 'final_answer("done")'], refund_that_fails(world)).run("Refund order o7")


def called_directly(world: World) -> None:
    """No model: the application itself tries again."""
    made = refund_that_fails(world)
    with world.scope("o7"):
        for _ in range(2):
            with suppress(ConnectionError):
                made(order="o7")


def timed_out_in_code(world: World) -> None:
    """The code's time is over before the tool has its answer."""

    def slowly(order: str) -> str:
        world.commit(order)
        threading.Event().wait(1.2)
        return "late"

    code: list[Turn] = ['print(refund("o7"))', 'print(refund("o7"))', 'final_answer("done")']
    with world.scope("o7"):
        coder(code, _tool(slowly, "class"), executor_kwargs={"timeout_seconds": 1}).run("Refund order o7")


def late_in_thread(world: World) -> None:
    """A tool commits in its thread while the next run asks for the same."""
    begun, may_commit = threading.Event(), threading.Event()

    def body(order: str) -> str:
        begun.set()
        may_commit.wait(10)
        return world.commit(order)

    with world.scope("o7"):
        first = agent([[("call_8sd7a", "refund", ORDER)], DONE], _tool(body, "class"))
        thread = threading.Thread(target=copy_context().run, args=(first.run, "Refund order o7"))
        thread.start()
        begun.wait(10)
        agent([[("call_1kf03", "refund", ORDER)], DONE], refund_that_works(world)).run("Refund order o7")
        may_commit.set()
        thread.join()


def parallel(world: World, kind: str = "class") -> None:
    calls = [(f"call_x{n}y", "refund", {"order": f"o{n}"}) for n in range(3)]
    with world.scope("o7"):
        agent([calls, DONE], refund_that_works(world, kind)).run("Refund order o7")


def twins(world: World) -> None:
    with world.scope("o7"):
        agent([[("call_8sd7a", "refund", ORDER), ("call_1kf03", "refund", ORDER)], DONE], refund_that_works(world)).run(
            "Refund order o7"
        )


def twins_in_code(world: World) -> None:
    with world.scope("o7"):
        coder(['print(refund("o7"), refund(order="o7"))', 'final_answer("done")'], refund_that_works(world)).run("Refund o7")


def later_turn(world: World) -> None:
    with world.scope("o7"):
        agent(again(), refund_that_works(world)).run("Refund order o7")


def later_code(world: World) -> None:
    with world.scope("o7"):
        coder(['print(refund("o7"))', 'print(refund("o7"))', 'final_answer("done")'], refund_that_works(world)).run(
            "Refund o7"
        )


def _only_o9_works(world: World) -> Any:
    return _tool(lambda order: world.commit(order) if order == "o9" else world.commit_then_fail(order), "class")


def _both(attempt: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [(f"call_9sd{attempt}", "refund", {"order": "o9"}), (f"call_kf{attempt}x", "refund", {"order": "oX"})]


def sibling_lost(world: World) -> None:
    """One of two parallel calls fails, so that the model never sees what the other returned, and asks for both again."""
    with world.scope("o7"):
        agent([_both("a"), _both("b"), DONE], _only_o9_works(world)).run("Refund orders o9 and oX")


def sibling_lost_in_code(world: World) -> None:
    code = 'first = refund("o9")\nsecond = refund("oX")\nprint(first, second)'
    with world.scope("o7"):
        coder([code, code, 'final_answer("done")'], _only_o9_works(world)).run("Refund orders o9 and oX")


def dies(world: World) -> None:
    """A call is paid, another's answer is lost, the model cannot be reached; the application runs it again."""
    refund = _only_o9_works(world)
    with world.scope("o7"):
        for attempt in ("a", "b"):
            paid, lost = _both(attempt)
            with suppress(Exception):
                agent([[lost], [paid], ConnectionError("the model is gone") if attempt == "a" else DONE], refund).run(
                    "Refund"
                )


def delegated_again(world: World) -> None:
    """An agent asks the one that it manages for the same thing in other words, as the first answer was an error."""
    answer: list[tuple[str, str, dict[str, Any]]] = [("call_f1n", "final_answer", {"answer": "I could not."})]
    refunder = agent(
        [[("call_a1b", "refund", ORDER)], answer, [("call_c2d", "refund", ORDER)], answer],
        refund_that_fails(world),
        name="refunder",
        description="Refunds orders.",
    )
    turns: list[Turn] = [
        [("call_8sd7a", "refunder", {"task": "refund o7", "additional_args": {}})],
        [("call_1kf03", "refunder", {"task": "please refund order o7 now", "additional_args": {}})],
        DONE,
    ]
    with world.scope("o7"):
        agent(turns, managed_agents=[refunder]).run("Refund order o7")


def bad_arguments(world: World) -> None:
    with world.scope("o7"):
        agent([[("call_8sd7a", "refund", {"ordr": "o7"})], DONE], refund_that_works(world)).run("Refund order o7")


def bad_arguments_in_code(world: World, kind: str = "class") -> None:
    with world.scope("o7"):
        coder(['refund(ordr="o7")', "refund()", 'final_answer("done")'], refund_that_works(world, kind)).run(
            "Refund order o7"
        )


# -- in another process ----------------------------------------------------------------------------------------------------


def run_by_another_process(world: World) -> None:
    """A process dies in the middle of a call, and another one runs the agent again."""
    guard = active()
    with tempfile.TemporaryDirectory() as directory:
        for part in ("first", "second"):
            subprocess.run(
                [sys.executable, "-m", "benchmarks.incidents.smolagents", directory, part],
                env={**os.environ, "GUARD_MODE": "off" if guard is None else guard.mode.value},
                timeout=120,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        for effect in (Path(directory) / "effects").read_text().split():
            world.commit(effect)


def _main(directory: Path, part: str) -> None:
    from genai_processor.guard.guard import Guard
    from genai_processor.guard.hooks import install

    mode = os.environ["GUARD_MODE"]
    if mode != "off":
        install(Guard(f"sqlite:///{directory / 'ledger.db'}", mode=mode, scope="o7"))

    def body(order: str) -> str:
        with (directory / "effects").open("a") as file:
            file.write(order + "\n")
        if part == "first":
            os._exit(1)
        return "done"

    agent([[(f"call_{part}", "refund", ORDER)], DONE], _tool(body, "class")).run("Refund order o7")


def _in(tell: Callable[..., None], **kwargs: Any) -> Callable[[World], None]:
    return lambda world: tell(world, **kwargs)


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "Tool", new_id, 2, 1),
    Incident(Story.NEW_ID, "@tool", _in(new_id, kind="function"), 2, 1),
    Incident(Story.NEW_ID, "in code, Tool", in_code, 2, 1),
    Incident(Story.NEW_ID, "in code, @tool", _in(in_code, kind="function"), 2, 1),
    Incident(Story.TRIED_AGAIN, "by a loop in code", loop_in_code, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.RUN_AGAIN, "the tool directly", called_directly, 2, 1),
    Incident(Story.TIMED_OUT, "in code", timed_out_in_code, 2, 1),
    Incident(Story.LATE, "", late_in_thread, 2, 1),
    Incident(Story.STREAMED, "", streamed, 2, 1),
    Incident(Story.PARALLEL, "", parallel, 3, 3),
    Incident(Story.TWINS, "", twins, 2, 2),
    Incident(Story.TWINS, "in code", twins_in_code, 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.LATER_TURN, "in code", later_code, 2, 2),
    Incident(Story.DIES, "the step only", sibling_lost, 4, 2),
    Incident(Story.DIES, "the step only, in code", sibling_lost_in_code, 4, 2),
    Incident(Story.DIES, "", dies, 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.OTHER_PROCESS, "", run_by_another_process, 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
    Incident(Story.BAD_ARGUMENTS, "in code", bad_arguments_in_code, 0, 0),
)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _main(Path(sys.argv[1]), sys.argv[2])
    else:
        for incident in INCIDENTS:
            print(incident.name, count(incident))
