# SPDX-License-Identifier: Apache-2.0
"""Incidents of CrewAI: real agents, scripted models."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import BaseTool, tool

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Body, Late, hangs_first, loses, loses_first, only_o9_works, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, run_again
from benchmarks.incidents.other_process import dies_unseen, in_two_processes, main, pays_and_dies, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, Turn, next_turn, once

ACTION = 'Thought: I need a tool.\nAction: refund\nAction Input: {"order": "o1"}'
OTHER = ACTION.replace("o1", "o8")
ANSWER = "Thought: I now know the final answer\nFinal Answer: done"


class Script(BaseLLM):
    """A model that does what it is told to, turn by turn, and keeps what it was sent."""

    turns: list[Any] = []
    seen: list[Any] = []
    native: bool = True

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append([dict(message) for message in messages] if isinstance(messages, list) else messages)
        turn = next_turn(self.turns)
        if isinstance(turn, str):
            return turn
        return [{"id": call_id, "function": {"name": name, "arguments": given}} for call_id, name, given in turn]

    async def acall(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(messages)

    def supports_function_calling(self) -> bool:
        return self.native

    def supports_stop_words(self) -> bool:
        return False


def agent(turns: Sequence[Turn], *tools: Any, native: bool = True, **kwargs: Any) -> Agent:
    script = Script(model="script")
    script.turns, script.seen, script.native = list(turns), [], native
    return Agent(
        role=kwargs.pop("role", "refunder"),
        goal="refund",
        backstory="You refund.",
        tools=list(tools),
        llm=script,
        **kwargs,
    )


def crew(*agents: Agent, **kwargs: Any) -> Crew:
    task = Task(description="Refund order o1", expected_output="a text", agent=agents[0])
    return Crew(agents=list(agents), tasks=[task], **kwargs)


def run(*agents: Agent, **kwargs: Any) -> str:
    return str(crew(*agents, **kwargs).kickoff())


def tool_of(body: Body, kind: str = "class") -> Any:
    """A tool of that body, made in one of CrewAI's ways."""

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


def refund_that_fails(world: World, kind: str = "class") -> Any:
    return tool_of(loses_first(world), kind)


def refund_that_works(world: World, kind: str = "class") -> Any:
    return tool_of(pays_in_thread(world), kind)


def told(
    body: Callable[[World], Body], turns: Sequence[Turn], kind: str = "class", native: bool = True, **of_both: Any
) -> Callable[[World], None]:
    """One run of a crew of one agent, whose tool has that body."""

    def tell(world: World) -> None:
        with world.scope("o1"):
            run(agent(turns, tool_of(body(world), kind), native=native, **of_both), **of_both)

    return tell


new_id = told(loses_first, scripts.AGAIN)
twins = told(pays_in_thread, scripts.TWINS, cache=False)
later_turn = told(pays_in_thread, scripts.AGAIN, cache=False)
later_text = told(pays_in_thread, [ACTION, OTHER, ACTION, ANSWER], native=False, cache=False)


def written(world: World, kind: str = "class") -> None:
    """The model writes what it wants to do (ReAct); the tool never gets an answer."""
    told(loses, [ACTION, ANSWER], kind, native=False)(world)


def in_async(world: World) -> None:
    with world.scope("o1"):
        asyncio.run(_kickoff(crew(agent(scripts.AGAIN, refund_that_fails(world)))))


async def _kickoff(made: Crew) -> None:
    await made.akickoff()


def streamed(world: World) -> None:
    with world.scope("o1"):
        for _ in crew(agent(scripts.AGAIN, refund_that_fails(world)), stream=True).kickoff():
            pass


def alone(world: World) -> None:
    """An agent without a crew."""
    with world.scope("o1"):
        agent(scripts.AGAIN, refund_that_fails(world)).kickoff("Refund order o1")


def called_directly(world: World) -> None:
    """No model: the application itself tries again."""
    made = refund_that_fails(world)
    with world.scope("o1"):
        for _ in range(2):
            with suppress(ConnectionError):
                made.run(order="o1")


def timed_out(world: World) -> None:
    """The task's time is over before the tool has its answer. CrewAI lets it end all the same; it is run again."""

    def slowly(order: str) -> str:
        world.commit(order)
        threading.Event().wait(1.2)
        return "late"

    with world.scope("o1"):
        with suppress(TimeoutError):
            run(agent(once(FIRST), tool_of(slowly), max_execution_time=1))
        run(agent(once(SECOND), refund_that_works(world)))


def late_in_thread(world: World) -> None:
    """A tool commits in its thread while the next run asks for the same."""
    late = Late(world)
    with world.scope("o1"):
        late.is_run_beside(*(partial(run, agent(once(call_id), tool_of(late.refund))) for call_id in (FIRST, SECOND)))


def cancelled(world: World) -> None:
    """The task of an async run is cancelled after the commit; the application runs it again."""
    refund = tool("refund")(hangs_first(world))
    again = partial(refund.arun, order="o1")
    with world.scope("o1"):
        asyncio.run(run_again(world.effects, again, again))


def dies(world: World) -> None:
    """One of two parallel calls is paid, the other's answer is lost, the model cannot be reached. CrewAI runs it again."""
    turns = [scripts.both("a1"), ValueError("the model is gone"), scripts.both("b2"), "done"]
    told(only_o9_works, turns)(world)


def delegated_again(world: World) -> None:
    """An agent delegates the same work twice, in other words, as the first answer was an error."""
    coworker = agent(scripts.INNER, refund_that_fails(world), role="coworker")
    turns = scripts.delegations("delegate_work_to_coworker", "task", context="none", coworker="coworker")
    boss = agent(turns, role="boss", allow_delegation=True)
    with world.scope("o1"):
        run(boss, coworker)


def bad_arguments(world: World, native: bool = True) -> None:
    turns: Sequence[Turn] = scripts.BAD_ARGUMENTS if native else [ACTION.replace('"order"', '"ordr"'), ANSWER]
    told(pays_in_thread, turns, native=native)(world)


def _killed(step: str, folder: Path) -> None:
    """A process dies in the middle of a call, and another one runs the agent again."""
    with World().scope("o1"):
        run(agent(once(f"toolu_{step}"), tool_of(pays_and_dies(step, folder))))


def _killed_later(step: str, folder: Path) -> None:
    with World().scope("o9"):
        run(agent(dies_unseen(step), tool_of(pays_there(folder))))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "BaseTool", new_id, 2, 1),
    Incident(Story.NEW_ID, "@tool", told(loses_first, scripts.AGAIN, "function"), 2, 1),
    Incident(Story.NEW_ID, "async @tool", told(loses_first, scripts.AGAIN, "coroutine"), 2, 1),
    Incident(Story.NEW_ID, "akickoff", in_async, 2, 1),
    Incident(Story.STREAMED, "", streamed, 2, 1),
    Incident(Story.NEW_ID, "without a crew", alone, 2, 1),
    Incident(Story.SAME_ID, "", told(loses_first, scripts.SAME_ID), 2, 1),
    Incident(Story.HANDLED, "ReAct, BaseTool", written, 6, 1),
    Incident(Story.HANDLED, "ReAct, @tool", partial(written, kind="function"), 6, 1),
    Incident(Story.RUN_AGAIN, "the tool directly", called_directly, 2, 1),
    Incident(Story.CANCELLED, "", cancelled, 2, 1),
    Incident(Story.TIMED_OUT, "", timed_out, 2, 1),
    Incident(Story.LATE, "", late_in_thread, 2, 1),
    Incident(Story.PARALLEL, "", told(pays_in_thread, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.TWINS, "", twins, 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.LATER_TURN, "ReAct", later_text, 3, 3),
    Incident(Story.DIES, "by CrewAI itself", dies, 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("crewai"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("crewai", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
    Incident(Story.BAD_ARGUMENTS, "ReAct", partial(bad_arguments, native=False), 0, 0),
)


if __name__ == "__main__":
    main({"killed": _killed, "killed_later": _killed_later})
