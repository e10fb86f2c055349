# SPDX-License-Identifier: Apache-2.0
"""LangGraph: which run a tool call belongs to, and which model response proposed it. The calls are LangChain's.

A run is what `stream` or `astream` yields; `invoke` and the others are made of these. What a run had saved when it died is
not lost, as long as its thread is what tells calls apart: whoever goes on with the thread shows it to the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.guard import bindings
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed
from genai_processor.guard.hooks.langchain_core import pauses, tool_node_messages
from genai_processor.guard.runs import Run, current_run, enter_run, leave_run
from genai_processor.guard.threads import tell
from genai_processor.ledger.entries import Entry

_Arguments = tuple[Any, ...]


class _GraphRun(Run):
    """A run of a graph, which may be a step of a tool's body.

    Attributes:
        thread: Its thread, or None.
        keeps: Its thread may keep what it has done: no part of another graph, which has no thread of its own.
        goes_on: Once paused, it goes on from where it was, and does not begin again.
        saved: Ids of the calls whose results are in that thread.
    """

    def __init__(self, scope: str | None, hint: str | None, thread: str | None) -> None:
        super().__init__(scope, hint)
        self.thread = thread
        self.keeps = False
        self.goes_on = False
        self.saved: frozenset[str] = frozenset()
        self._within = within = bindings.current()
        self._accountable = within is not None and not within.outside
        if within is not None:
            others = _within.setdefault(id(within), [])
            others.append(self)
            if len(others) > 1:
                for one in tuple(others):
                    one._accountable = False

    def died(self) -> tuple[Entry, ...]:
        return tuple(one for one in super().died() if one.scope != self.thread or one.call_id not in self.saved)

    def paused(self) -> None:
        """Note that it waits for somebody. What it has done is no reason not to begin the body around it again."""
        if self._within is not None and self._accountable and self.goes_on:
            self._within.outside = False

    def over(self) -> None:
        """Note that it has ended, in whatever way."""
        if self._within is not None:
            others = _within[id(self._within)]
            others.remove(self)
            if not others:
                del _within[id(self._within)]


_within: Final[dict[int, list[_GraphRun]]] = {}
"""Id of a call whose body has begun runs -> those that go on."""


def _new_run(graph: Any, config: Any) -> _GraphRun:
    outer = current_run()
    configurable = import_module("langchain_core.runnables.config").ensure_config(config).get("configurable", {})
    thread = configurable.get("thread_id")
    hint = None if thread is None else str(thread)
    run = _GraphRun(None if outer is None else outer.scope, hint or (None if outer is None else outer.hint), hint)
    run.goes_on = graph.checkpointer is not False
    run.keeps = thread is not None and "__pregel_task_id" not in configurable
    return run


def _stream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return _steps(guard, instance, argument("config", 1, args, kwargs), wrapped(*args, **kwargs))


def _steps(guard: Guard, graph: Any, config: Any, stream: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    run = _new_run(graph, config)
    try:
        while True:
            token = enter_run(run)
            try:
                item = next(stream)
            except StopIteration:
                break
            finally:
                leave_run(token)
            yield item
    except GeneratorExit:  # whoever loses interest may have seen the answer
        stream.close()
        raise
    except pauses():
        run.paused()
        raise
    except BaseException:
        try:
            stream.close()
            run.saved = _saved(graph, run)
        finally:
            guard.died(run)
        raise
    finally:
        run.over()
    guard.delivered(run.delivered())


def _astream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return _asteps(guard, instance, argument("config", 1, args, kwargs), wrapped(*args, **kwargs))


async def _asteps(guard: Guard, graph: Any, config: Any, stream: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    run = _new_run(graph, config)
    try:
        while True:
            token = enter_run(run)
            try:
                item = await anext(stream)
            except StopAsyncIteration:
                break
            finally:
                leave_run(token)
            yield item
    except GeneratorExit:
        await stream.aclose()
        raise
    except pauses():
        run.paused()
        raise
    except BaseException:
        try:
            await stream.aclose()
            run.saved = await _asaved(graph, run)
        finally:  # even if it is cancelled once more
            await tell(guard.threads, partial(guard.died, run))
        raise
    finally:
        run.over()
    await tell(guard.threads, partial(guard.delivered, run.delivered()))


# -- what a thread has kept ----------------------------------------------------------------------------------------------


def _saved(graph: Any, run: _GraphRun) -> frozenset[str]:
    if not run.keeps:
        return frozenset()
    try:
        return _answered(graph.get_state({"configurable": {"thread_id": run.thread}}))
    except Exception:  # noqa: BLE001 - nothing keeps it, or it cannot be asked: then it counts as lost
        return frozenset()


async def _asaved(graph: Any, run: _GraphRun) -> frozenset[str]:
    if not run.keeps:
        return frozenset()
    try:
        return _answered(await graph.aget_state({"configurable": {"thread_id": run.thread}}))
    except Exception:  # noqa: BLE001 - as above
        return frozenset()


def _answered(snapshot: Any) -> frozenset[str]:
    """Ids of the calls whose results are in a state."""
    values = snapshot.values
    lists = [values] if isinstance(values, list) else list(values.values()) if isinstance(values, dict) else []
    found = (getattr(one, "tool_call_id", None) for some in lists if isinstance(some, list) for one in some)
    return frozenset(call_id for call_id in found if call_id)


# -- who proposed a call -------------------------------------------------------------------------------------------------


def _run_one(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    token = tool_node_messages.set(_messages(instance, args, kwargs))
    try:
        return wrapped(*args, **kwargs)
    finally:
        tool_node_messages.reset(token)


def _arun_one(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    return _with_messages(wrapped, instance, args, kwargs)


async def _with_messages(wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    token = tool_node_messages.set(_messages(instance, args, kwargs))
    try:
        return await wrapped(*args, **kwargs)
    finally:
        tool_node_messages.reset(token)


def _messages(node: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    """The messages from which a `ToolNode` took its calls: from 1.0 on it has them at hand; else the graph has."""
    key: Any = getattr(node, "_messages_key", None) or getattr(node, "messages_key", "messages")
    state = getattr(argument("tool_runtime", 2, args, kwargs), "state", None)
    if isinstance(state, list):
        return state
    found = state.get(key) if isinstance(state, dict) else getattr(state, key, None)
    if found is None:
        config = argument("config", 2, args, kwargs)
        read = config["configurable"].get("__pregel_read") if isinstance(config, dict) else None
        try:
            found = None if read is None else read(key)
        except Exception:  # noqa: BLE001 - a graph with another state
            return None
    return found


_MAIN = "langgraph.pregel.main"
_TOOL_NODE = "langgraph.prebuilt.tool_node"

HOOK = Hook(
    "LangGraph",
    (
        Target(_MAIN, "Pregel.stream", ("input", "config"), _stream),
        Target(_MAIN, "Pregel.astream", ("input", "config"), _astream),
    ),
    (
        Target(_TOOL_NODE, "ToolNode._run_one", ("call",), _run_one),
        Target(_TOOL_NODE, "ToolNode._arun_one", ("call",), _arun_one),
    ),
)
