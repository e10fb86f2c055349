# SPDX-License-Identifier: Apache-2.0
"""Microsoft Agent Framework: real agents, tools and sessions; only the model is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    function_middleware,
    tool,
)

from benchmarks.incidents.bodies import Late, hangs_beside, hangs_first, on_the_loop, pays, pays_in_thread
from benchmarks.incidents.kit import Incident, Run, Story, World, run_again, told
from benchmarks.incidents.other_process import (
    die,
    dies_unseen_asks,
    in_two_processes,
    land,
    main,
    pays_and_dies,
    pays_there,
)
from benchmarks.incidents.scripts import WRONG, Asks, ask, next_asks


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Proposes the calls of a script, turn by turn, under new ids; then says that it is done."""

    def __init__(self, *script: Asks, same_ids: bool = False) -> None:
        super().__init__()
        self.script = list(script)
        self.asked: list[str] = []
        self.told: list[Any] = []
        self.same_ids = same_ids

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        self.told += [content.result for content in messages[-1].contents if content.type == "function_result"]
        contents = []
        for name, arguments in next_asks(self.script):
            self.asked.append(f"toolu_{name}_same" if self.same_ids else f"toolu_{uuid4()}")
            contents.append(Content.from_function_call(self.asked[-1], name, arguments=json.dumps(arguments)))
        contents = contents or [Content.from_text("done")]
        if stream:
            return ResponseStream(self._stream(contents), finalizer=ChatResponse.from_updates)
        return self._answer(contents)

    async def _answer(self, contents: list[Content]) -> ChatResponse[Any]:
        return ChatResponse(messages=[Message(role="assistant", contents=contents)])

    async def _stream(self, contents: list[Content]) -> AsyncIterator[ChatResponseUpdate]:
        for content in contents:
            yield ChatResponseUpdate(role="assistant", contents=[content])


def agent(tools: list[Any], *script: Asks, same_ids: bool = False, **more: Any) -> Agent[Any]:
    return Agent(client=Scripted(*script, same_ids=same_ids), tools=tools, **more)


def unasked(body: Callable[..., Any]) -> Any:
    """A tool that waits for nobody's approval."""
    return tool(body, approval_mode="never_require")


def failing(world: World, *, sync: bool = False) -> Any:
    """A refund whose answer is lost the first time."""
    return unasked((pays_in_thread if sync else pays)(world, once=True))


def paying(world: World, *, sync: bool = False) -> Any:
    return unasked((pays_in_thread if sync else pays)(world))


def new_id(*, sync: bool = False, same_ids: bool = False) -> Callable[[World], None]:
    """The framework tells the model of the error, and the model asks again."""

    async def story(world: World) -> None:
        made = agent([failing(world, sync=sync)], [ask()], [ask()], same_ids=same_ids)
        await made.run("refund o9", session=AgentSession())

    return told(story)


async def streamed(world: World) -> None:
    async for _ in agent([failing(world)], [ask()], [ask()]).run("refund o9", stream=True, session=AgentSession()):
        pass


async def run_again_by_the_application(world: World) -> None:
    """Without a session, so that only the application knows what belongs together."""
    refund = failing(world)
    for _ in range(2):
        with world.scope("order o9"):
            await agent([refund], [ask()]).run("refund o9")


async def tried_again_by_middleware(world: World) -> None:
    @function_middleware
    async def again(context: Any, call_next: Any) -> None:
        try:
            await call_next()
        except ConnectionError:
            await call_next()

    await agent([failing(world)], [ask()], middleware=[again]).run("refund o9", session=AgentSession())


def twice(made: Agent[Any]) -> tuple[Run, Run]:
    """Two runs of one session."""
    session = AgentSession()
    return (lambda: made.run("refund", session=session)), (lambda: made.run("refund", session=session))


async def cancelled(world: World) -> None:
    await run_again(world.effects, *twice(agent([unasked(hangs_first(world))], [ask()], [ask()])))


async def late_in_a_thread(world: World) -> None:
    late = Late(world)
    await late.is_run_again(*twice(agent([unasked(late.refund)], [ask()], [ask()])))


def in_one_run(*script: Asks, sync: bool = False) -> Callable[[World], None]:
    async def story(world: World) -> None:
        await agent([paying(world, sync=sync)], *script).run("refund", session=AgentSession())

    return told(story)


async def dies_beside_a_sibling(world: World) -> None:
    """One of two is paid, the other one hangs; somebody ends the run, and begins it again."""
    results: list[Any] = []

    @function_middleware
    async def has_its_result(context: Any, call_next: Any) -> None:
        await call_next()
        results.append(context)

    both = [ask("o8"), ask("o9")]
    made = agent([unasked(hangs_beside(world))], both, both, middleware=[has_its_result])
    await run_again(results, *twice(made))


async def delegated_again(world: World) -> None:
    helper = agent([failing(world)], [ask()], [], [ask()], name="refunds", description="Refunds.")
    words = [[("refunds", {"task": "refund o9"})], [("refunds", {"task": "please give the money for o9 back"})]]
    as_tool = helper.as_tool(name="refunds", arg_name="task")
    await agent([as_tool], *words).run("refund o9", session=AgentSession())


async def approved(world: World) -> None:
    made, session = agent([tool(pays(world), approval_mode="always_require")], [ask()]), AgentSession()
    asked = await made.run("refund o9", session=session)
    answers = [one.to_function_approval_response(True) for one in asked.user_input_requests]
    await made.run(Message(role="user", contents=answers), session=session)


async def bad_arguments(world: World) -> None:
    await agent([paying(world)], WRONG, WRONG).run("refund", session=AgentSession())


def _killed(step: str, folder: Path) -> None:
    """The session is kept by the application, from before the run."""
    file = folder / "session"
    session = AgentSession() if step == "first" else AgentSession.from_dict(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(session.to_dict()), encoding="utf-8")
    made = agent([unasked(on_the_loop(pays_and_dies(step, folder)))], [ask()])
    asyncio.run(made.run("refund o9", session=session))  # type: ignore[arg-type]


def _approved_later(step: str, folder: Path) -> None:
    async def refund(order: str) -> str:
        land(folder, order)
        return "done"

    async def story() -> None:
        file = folder / "session"
        made = agent([tool(refund, approval_mode="always_require")], *([[ask()]] if step == "first" else []))
        if step == "first":
            session = AgentSession()
            asked = await made.run("refund o9", session=session)
            requests = [one.to_dict() for one in asked.user_input_requests]
            file.write_text(json.dumps([session.to_dict(), requests]), encoding="utf-8")
            die()
        kept, requests = json.loads(file.read_text(encoding="utf-8"))
        answers = [Content.from_dict(one).to_function_approval_response(True) for one in requests]
        await made.run(Message(role="user", contents=answers), session=AgentSession.from_dict(kept))

    asyncio.run(story())


def _killed_later(step: str, folder: Path) -> None:
    """Of the session nothing was kept but its name."""
    made = agent([unasked(pays_there(folder))], *dies_unseen_asks(step))
    asyncio.run(made.run("refund o9", session=AgentSession(session_id="c1")))  # type: ignore[arg-type]


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id(), 2, 1),
    Incident(Story.NEW_ID, "sync tool", new_id(sync=True), 2, 1),
    Incident(Story.SAME_ID, "", new_id(same_ids=True), 2, 1),
    Incident(Story.STREAMED, "", told(streamed), 2, 1),
    Incident(Story.RUN_AGAIN, "", told(run_again_by_the_application), 2, 1),
    Incident(Story.TRIED_AGAIN, "by middleware", told(tried_again_by_middleware), 2, 1),
    Incident(Story.CANCELLED, "", told(cancelled), 2, 1),
    Incident(Story.LATE, "", told(late_in_a_thread), 2, 1),
    Incident(Story.PARALLEL, "async tool", in_one_run([ask("o1"), ask("o2"), ask("o3")]), 3, 3),
    Incident(Story.PARALLEL, "sync tool", in_one_run([ask("o1"), ask("o2"), ask("o3")], sync=True), 3, 3),
    Incident(Story.TWINS, "async tool", in_one_run([ask(), ask()]), 2, 2),
    Incident(Story.TWINS, "sync tool", in_one_run([ask(), ask()], sync=True), 2, 2),
    Incident(Story.LATER_TURN, "", in_one_run([ask()], [ask()]), 2, 2),
    Incident(Story.DIES, "", told(dies_beside_a_sibling), 4, 2),
    Incident(Story.DELEGATED, "", told(delegated_again), 2, 1),
    Incident(Story.APPROVED, "", told(approved), 1, 1),
    Incident(Story.APPROVED, "in another process", in_two_processes("agent_framework", "approved"), 1, 1, elsewhere=True),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("agent_framework"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("agent_framework", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", told(bad_arguments), 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed, "approved": _approved_later, "killed_later": _killed_later})
