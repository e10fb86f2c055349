# SPDX-License-Identifier: Apache-2.0
"""Incidents of CrewAI: real agents, scripted models."""

from __future__ import annotations

import asyncio
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

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import BaseTool, tool

from benchmarks.incidents.kit import Incident, Story, World, count
from genai_processor.guard.hooks import active

Turn = str | list[tuple[str, str, dict[str, Any]]] | Exception
"""What a scripted model does: write a text, call tools (id, name, arguments), or fail."""

ORDER = {"order": "o7"}
ACTION = 'Thought: I need a tool.\nAction: refund\nAction Input: {"order": "o7"}'
ANSWER = "Thought: I now know the final answer\nFinal Answer: done"


class Script(BaseLLM):
    """A model that does what it is told to, turn by turn, and keeps what it was sent."""

    turns: list[Any] = []
    seen: list[Any] = []
    native: bool = True

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append([dict(message) for message in messages] if isinstance(messages, list) else messages)
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, str):
            return turn
        return [{"id": call_id, "function": {"name": name, "arguments": given}} for call_id, name, given in turn]

    async def acall(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(messages)

    def supports_function_calling(self) -> bool:
        return self.native

    def supports_stop_words(self) -> bool:
        return False


def agent(turns: list[Turn], *tools: Any, native: bool = True, **kwargs: Any) -> Agent:
    script = Script(model="script")
    script.turns, script.seen, script.native = turns, [], native
    return Agent(
        role=kwargs.pop("role", "refunder"),
        goal="refund",
        backstory="You refund.",
        tools=list(tools),
        llm=script,
        **kwargs,
    )


def crew(*agents: Agent, **kwargs: Any) -> Crew:
    task = Task(description="Refund order o7", expected_output="a text", agent=agents[0])
    return Crew(agents=list(agents), tasks=[task], **kwargs)


def run(*agents: Agent, **kwargs: Any) -> str:
    return str(crew(*agents, **kwargs).kickoff())


def refund_that_fails(world: World, kind: str = "class") -> Any:
    """A tool that refunds; its answer is lost the first time."""
    times: list[str] = []

    def once(order: str) -> str:
        times.append(order)
        return world.commit_then_fail(order) if times.count(order) == 1 else world.commit(order)

    return _tool(once, kind)


def refund_that_works(world: World, kind: str = "class") -> Any:
    return _tool(world.commit, kind)


def _tool(body: Callable[[str], str], kind: str) -> Any:
    class Refund(BaseTool):
        name: str = "refund"
        description: str = "Refund an order."

        def _run(self, order: str) -> str:
            return body(order)

    @tool("refund")
    def refund(order: str) -> str:
        """Refund an order."""
        return body(order)

    @tool("refund")
    async def arefund(order: str) -> str:
        """Refund an order."""
        return body(order)

    return {"class": Refund(), "function": refund, "coroutine": arefund}[kind]


def again(first: str = "call_8sd7a", second: str = "call_1kf03") -> list[Turn]:
    return [[(first, "refund", ORDER)], [(second, "refund", ORDER)], "done"]


def new_id(world: World, kind: str = "class") -> None:
    with world.scope("o7"):
        run(agent(again(), refund_that_fails(world, kind)))


def same_id(world: World) -> None:
    with world.scope("o7"):
        run(agent(again("call_8sd7a", "call_8sd7a"), refund_that_fails(world)))


def written(world: World, kind: str = "class") -> None:
    """The model writes what it wants to do (ReAct); the tool never gets an answer."""

    def body(order: str) -> str:
        return world.commit_then_fail(order)

    with world.scope("o7"):
        run(agent([ACTION, ANSWER], _tool(body, kind), native=False))


def in_async(world: World) -> None:
    with world.scope("o7"):
        asyncio.run(_kickoff(crew(agent(again(), refund_that_fails(world)))))


async def _kickoff(made: Crew) -> None:
    await made.akickoff()


def streamed(world: World) -> None:
    with world.scope("o7"):
        for _ in crew(agent(again(), refund_that_fails(world)), stream=True).kickoff():
            pass


def alone(world: World) -> None:
    """An agent without a crew."""
    with world.scope("o7"):
        agent(again(), refund_that_fails(world)).kickoff("Refund order o7")


def called_directly(world: World) -> None:
    """No model: the application itself tries again."""
    made = refund_that_fails(world)
    with world.scope("o7"):
        for _ in range(2):
            with suppress(ConnectionError):
                made.run(order="o7")


def timed_out(world: World) -> None:
    """The task's time is over before the tool has its answer. CrewAI lets it end all the same; it is run again."""

    def slowly(order: str) -> str:
        world.commit(order)
        threading.Event().wait(1.2)
        return "late"

    with world.scope("o7"):
        with suppress(TimeoutError):
            run(agent([[("call_8sd7a", "refund", ORDER)], "done"], _tool(slowly, "class"), max_execution_time=1))
        run(agent([[("call_1kf03", "refund", ORDER)], "done"], refund_that_works(world)))


def late_in_thread(world: World) -> None:
    """A tool commits in its thread while the next run asks for the same."""
    begun, may_commit = threading.Event(), threading.Event()

    def body(order: str) -> str:
        begun.set()
        may_commit.wait(10)
        return world.commit(order)

    def first() -> None:
        run(agent([[("call_8sd7a", "refund", ORDER)], "done"], _tool(body, "class")))

    with world.scope("o7"):
        thread = _thread(first)
        begun.wait(10)
        run(agent([[("call_1kf03", "refund", ORDER)], "done"], refund_that_works(world)))
        may_commit.set()
        thread.join()


def _thread(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=copy_context().run, args=(function,))
    thread.start()
    return thread


def cancelled(world: World) -> None:
    """The task of an async run is cancelled after the commit; the application runs it again."""

    async def main() -> None:
        committed = asyncio.Event()

        @tool("refund")
        async def refund(order: str) -> str:
            """Refund an order."""
            world.commit(order)
            committed.set()
            await asyncio.Event().wait()
            return "never"

        task = asyncio.ensure_future(refund.arun(order="o7"))
        await committed.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await refund_that_works(world, "coroutine").arun(order="o7")

    with world.scope("o7"):
        asyncio.run(main())


def parallel(world: World, kind: str = "class") -> None:
    calls = [(f"call_x{n}y", "refund", {"order": f"o{n}"}) for n in range(3)]
    with world.scope("o7"):
        run(agent([calls, "done"], refund_that_works(world, kind)))


def twins(world: World, kind: str = "class") -> None:
    calls = [("call_8sd7a", "refund", ORDER), ("call_1kf03", "refund", ORDER)]
    with world.scope("o7"):
        run(agent([calls, "done"], refund_that_works(world, kind), cache=False), cache=False)


def later_turn(world: World) -> None:
    with world.scope("o7"):
        run(agent(again(), refund_that_works(world), cache=False), cache=False)


def later_text(world: World) -> None:
    with world.scope("o7"):
        run(agent([ACTION, OTHER, ACTION, ANSWER], refund_that_works(world), native=False, cache=False), cache=False)


OTHER = 'Thought: I need a tool.\nAction: refund\nAction Input: {"order": "o8"}'


def dies(world: World) -> None:
    """One of two parallel calls is paid, the other's answer is lost, the model cannot be reached. CrewAI runs it again."""

    def body(order: str) -> str:
        return world.commit(order) if order == "o9" else world.commit_then_fail(order)

    turns: list[Turn] = []
    for attempt in ("a", "b"):
        turns.append([(f"call_9sd{attempt}", "refund", {"order": "o9"}), (f"call_kf{attempt}x", "refund", {"order": "oX"})])
        turns.append(ValueError("the model is gone") if attempt == "a" else "done")
    with world.scope("o7"):
        run(agent(turns, _tool(body, "class")))


def delegated_again(world: World) -> None:
    """An agent delegates the same work twice, in other words, as the first answer was an error."""
    coworker = agent(
        [[("call_a1b", "refund", ORDER)], "I could not.", [("call_c2d", "refund", ORDER)], "I could not."],
        refund_that_fails(world),
        role="coworker",
    )
    words = [
        {"task": task, "context": "none", "coworker": "coworker"} for task in ("refund o7", "please refund order o7 now")
    ]
    boss = agent(
        [
            [("call_8sd7a", "delegate_work_to_coworker", words[0])],
            [("call_1kf03", "delegate_work_to_coworker", words[1])],
            "done",
        ],
        role="boss",
        allow_delegation=True,
    )
    with world.scope("o7"):
        run(boss, coworker)


def bad_arguments(world: World, native: bool = True) -> None:
    turns: list[Turn] = [[("call_8sd7a", "refund", {"ordr": "o7"})], "done"]
    if not native:
        turns = [ACTION.replace('"order"', '"ordr"'), ANSWER]
    with world.scope("o7"):
        run(agent(turns, refund_that_works(world), native=native))


# -- in another process ----------------------------------------------------------------------------------------------------


def run_by_another_process(world: World) -> None:
    """A process dies in the middle of a call, and another one runs the crew again."""
    guard = active()
    with tempfile.TemporaryDirectory() as directory:
        for part in ("first", "second"):
            subprocess.run(
                [sys.executable, "-m", "benchmarks.incidents.crewai", directory, part],
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

    run(agent([[(f"call_{part}", "refund", ORDER)], "done"], _tool(body, "class")))


def _in(tell: Callable[..., None], **kwargs: Any) -> Callable[[World], None]:
    return lambda world: tell(world, **kwargs)


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "BaseTool", new_id, 2, 1),
    Incident(Story.NEW_ID, "@tool", _in(new_id, kind="function"), 2, 1),
    Incident(Story.NEW_ID, "async @tool", _in(new_id, kind="coroutine"), 2, 1),
    Incident(Story.NEW_ID, "akickoff", in_async, 2, 1),
    Incident(Story.STREAMED, "", streamed, 2, 1),
    Incident(Story.NEW_ID, "without a crew", alone, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.HANDLED, "ReAct, BaseTool", written, 6, 1),
    Incident(Story.HANDLED, "ReAct, @tool", _in(written, kind="function"), 6, 1),
    Incident(Story.RUN_AGAIN, "the tool directly", called_directly, 2, 1),
    Incident(Story.CANCELLED, "", cancelled, 2, 1),
    Incident(Story.TIMED_OUT, "", timed_out, 2, 1),
    Incident(Story.LATE, "", late_in_thread, 2, 1),
    Incident(Story.PARALLEL, "", parallel, 3, 3),
    Incident(Story.TWINS, "", twins, 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.LATER_TURN, "ReAct", later_text, 3, 3),
    Incident(Story.DIES, "by CrewAI itself", dies, 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.OTHER_PROCESS, "", run_by_another_process, 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
    Incident(Story.BAD_ARGUMENTS, "ReAct", _in(bad_arguments, native=False), 0, 0),
)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _main(Path(sys.argv[1]), sys.argv[2])
    else:
        for incident in INCIDENTS:
            print(incident.name, count(incident))
