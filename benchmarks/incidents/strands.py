# SPDX-License-Identifier: Apache-2.0
"""Strands Agents: real agents, tools and sessions; only the model is scripted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from benchmarks.incidents.bodies import Late, hangs_beside, hangs_first, pays, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, run_again, told
from benchmarks.incidents.other_process import (
    die,
    dies_unseen_asks,
    in_two_processes,
    land,
    main,
    pays_and_dies,
    pays_there,
)
from benchmarks.incidents.scripts import WRONG, Ask, Asks, ask, next_asks


class Scripted(Model):
    """Proposes the calls of a script, turn by turn, under new ids; then says that it is done."""

    def __init__(self, *script: Asks, same_ids: bool = False) -> None:
        self.script = list(script)
        self.asked: list[str] = []
        self.told: list[str] = []
        self._same_ids = same_ids

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        results = [block["toolResult"] for block in messages[-1]["content"] if "toolResult" in block]
        self.told += [block["text"] for result in results for block in result["content"]]
        calls = next_asks(self.script)
        yield {"messageStart": {"role": "assistant"}}
        for name, arguments in calls:
            self.asked.append(f"toolu_{name}_same" if self._same_ids else f"toolu_{uuid4()}")
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": self.asked[-1], "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def agent(tools: list[Any], *script: Asks, same_ids: bool = False, **more: Any) -> Agent:
    return Agent(model=Scripted(*script, same_ids=same_ids), tools=tools, callback_handler=None, **more)


def failing(world: World, *, sync: bool = False) -> Any:
    """A refund whose answer is lost the first time."""
    return tool((pays_in_thread if sync else pays)(world, once=True))


def paying(world: World, *, sync: bool = False) -> Any:
    return tool((pays_in_thread if sync else pays)(world))


def new_id(*, sync: bool = False, same_ids: bool = False) -> Callable[[World], None]:
    """Strands tells the model of the error, and the model asks again."""

    def tell(world: World) -> None:
        agent([failing(world, sync=sync)], [ask()], [ask()], same_ids=same_ids)("refund o9")

    return tell


async def streamed(world: World) -> None:
    async for _ in agent([failing(world)], [ask()], [ask()]).stream_async("refund o9"):
        pass


def run_again_by_the_application(world: World) -> None:
    """With a new agent, so that only the application knows what belongs together."""
    refund = failing(world)
    for _ in range(2):
        with world.scope("order o9"):
            agent([refund], [ask()])("refund o9")


def retried_by_a_hook(world: World) -> None:
    made = agent([failing(world)], [ask()])

    def again(event: AfterToolCallEvent) -> None:
        event.retry = event.exception is not None

    made.hooks.add_callback(AfterToolCallEvent, again)
    made("refund o9")


def called_directly(world: World) -> None:
    made = agent([failing(world)])
    for _ in range(2):
        made.tool.refund(order="o9")


async def cancelled(world: World) -> None:
    made = agent([tool(hangs_first(world))], [ask()], [ask()])
    await run_again(world.effects, lambda: made.invoke_async("refund o9"), lambda: made.invoke_async("refund o9"))


async def late_in_a_thread(world: World) -> None:
    late = Late(world)
    made = agent([tool(late.refund)], [ask()], [ask()])
    await late.is_run_again(lambda: made.invoke_async("refund o9"), lambda: made.invoke_async("refund o9"))


def in_one_run(*script: list[Ask], sync: bool = False) -> Callable[[World], None]:
    def tell(world: World) -> None:
        agent([paying(world, sync=sync)], *script)("refund")

    return tell


async def dies_beside_a_sibling(world: World) -> None:
    """One of two is paid, the other one hangs; somebody ends the run, and begins it again."""
    results: list[AfterToolCallEvent] = []
    both = [ask("o8"), ask("o9")]
    made = agent([tool(hangs_beside(world))], both, both)
    made.hooks.add_callback(AfterToolCallEvent, results.append)
    await run_again(results, lambda: made.invoke_async("refund both"), lambda: made.invoke_async("refund both"))


def delegated_again(world: World) -> None:
    helper = agent([failing(world)], [ask()], [], [ask()], name="refunds")
    as_tool = helper.as_tool(name="refunds", description="Refunds.")
    agent(
        [as_tool],
        [("refunds", {"input": "refund o9"})],
        [("refunds", {"input": "please give the money for o9 back"})],
    )("refund o9")


def _asking_first(world: World) -> Any:
    @tool(context=True)
    def refund(order: str, tool_context: ToolContext) -> str:
        if tool_context.interrupt("approve", reason="really?") == "yes":
            return world.commit(order)
        return "declined"

    return refund


def approved(world: World) -> None:
    made = agent([_asking_first(world)], [ask()])
    asked = made("refund o9")
    made([{"interruptResponse": {"interruptId": one.id, "response": "yes"}} for one in asked.interrupts])


def bad_arguments(world: World) -> None:
    agent([paying(world)], WRONG, WRONG)("refund")


def _goes_on(step: str, folder: Path) -> None:
    sessions = FileSessionManager(session_id="c1", storage_dir=str(folder))
    agent([tool(pays_and_dies(step, folder))], [ask()], session_manager=sessions)("refund o9")


def _approved_later(step: str, folder: Path) -> None:
    @tool(context=True)
    def refund(order: str, tool_context: ToolContext) -> str:
        if tool_context.interrupt("approve") == "yes":
            land(folder, order)
        return "done"

    sessions = FileSessionManager(session_id="c1", storage_dir=str(folder))
    made = agent([refund], *([[ask()]] if step == "first" else []), session_manager=sessions)
    if step == "first":
        asked = made("refund o9")
        (folder / "asked").write_text(asked.interrupts[0].id, encoding="utf-8")
        die()
    asked_for = (folder / "asked").read_text(encoding="utf-8")
    made([{"interruptResponse": {"interruptId": asked_for, "response": "yes"}}])


def _killed_later(step: str, folder: Path) -> None:
    """With an agent that knows of no session, so that only the application knows what belongs together."""
    with World().scope("order o9"):
        agent([tool(pays_there(folder))], *dies_unseen_asks(step))("refund o9")


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id(), 2, 1),
    Incident(Story.NEW_ID, "sync tool", new_id(sync=True), 2, 1),
    Incident(Story.SAME_ID, "", new_id(same_ids=True), 2, 1),
    Incident(Story.STREAMED, "", told(streamed), 2, 1),
    Incident(Story.RUN_AGAIN, "", run_again_by_the_application, 2, 1),
    Incident(Story.TRIED_AGAIN, "by a hook", retried_by_a_hook, 2, 1),
    Incident(Story.RUN_AGAIN, "the tool directly", called_directly, 2, 1),
    Incident(Story.CANCELLED, "", told(cancelled), 2, 1),
    Incident(Story.LATE, "", told(late_in_a_thread), 2, 1),
    Incident(Story.PARALLEL, "async tool", in_one_run([ask("o1"), ask("o2"), ask("o3")]), 3, 3),
    Incident(Story.PARALLEL, "sync tool", in_one_run([ask("o1"), ask("o2"), ask("o3")], sync=True), 3, 3),
    Incident(Story.TWINS, "async tool", in_one_run([ask(), ask()]), 2, 2),
    Incident(Story.TWINS, "sync tool", in_one_run([ask(), ask()], sync=True), 2, 2),
    Incident(Story.LATER_TURN, "", in_one_run([ask()], [ask()]), 2, 2),
    Incident(Story.DIES, "", told(dies_beside_a_sibling), 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.APPROVED, "interrupt", approved, 1, 1),
    Incident(Story.APPROVED, "in another process", in_two_processes("strands", "approved"), 1, 1, elsewhere=True),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("strands"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("strands", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
)

if __name__ == "__main__":
    main({"killed": _goes_on, "approved": _approved_later, "killed_later": _killed_later})
