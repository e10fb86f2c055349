# SPDX-License-Identifier: Apache-2.0
"""LangGraph: which run a tool call belongs to, and which model response proposed it. The calls are LangChain's.

A run is what `stream` or `astream` yields; `invoke` and the others are made of these. What a run had saved when it died is
not lost, as long as its thread is what tells calls apart: whoever goes on with the thread shows it to the model.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.guard import bindings
from genai_processor.guard.bindings import Bound
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed
from genai_processor.guard.hooks.langchain_core import tool_node_messages
from genai_processor.guard.hooks.langchain_results import pauses
from genai_processor.guard.running import ends_of
from genai_processor.guard.runs import Run, in_run
from genai_processor.guard.streams import Steps, steps, stepwise
from genai_processor.guard.variables import held, holding
from genai_processor.ledger.entries import Entry

_Arguments = tuple[Any, ...]


class _GraphRun(Run):
    """A run of a graph, which may be a step of a tool's body.

    Attributes:
        thread: Its thread, or None.
        keeps: Its thread may keep what it has done: no part of another graph, which has no thread of its own.
        goes_on: Once paused, it goes on from where it was, and does not begin again.
        saved: Ids of the calls whose results are in that thread.
        accountable: Of the call in whose body it is, nothing but this run has made calls.
    """

    def __init__(self, scope: str | None = None, hint: str | None = None) -> None:
        super().__init__(scope, hint)
        self.thread: str | None = None
        self.keeps = False
        self.goes_on = False
        self.saved: frozenset[str] = frozenset()
        self._within = within = bindings.current()
        self.accountable = within is not None and not within.outside
        if within is not None:
            _going_on.began(within, self)

    def has_saved(self, entry: Entry) -> bool:
        return entry.scope == self.thread and entry.call_id in self.saved

    def dies_of(self, error: BaseException) -> bool:
        """Whether it has died. If it waits for somebody, what it did is no reason not to begin the body around it again."""
        if not isinstance(error, pauses()):
            return not isinstance(error, GeneratorExit)
        if self._within is not None and self.accountable and self.goes_on:
            self._within.outside = False
        return False

    def over(self) -> None:
        """Note that it has ended, in whatever way."""
        if self._within is not None:
            _going_on.ended(self._within, self)


class _GoingOn:
    """The runs that go on in the bodies of calls, where threads may begin several at once."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._runs: dict[int, list[_GraphRun]] = {}  # by the id of the call

    def began(self, within: Bound, run: _GraphRun) -> None:
        """Note a run. Of several nobody can tell which one has made a call."""
        with self._lock:
            others = self._runs.setdefault(id(within), [])
            others.append(run)
            if len(others) > 1:
                for one in others:
                    one.accountable = False

    def ended(self, within: Bound, run: _GraphRun) -> None:
        """Note that a run does not go on."""
        with self._lock:
            others = self._runs[id(within)]
            others.remove(run)
            if not others:
                del self._runs[id(within)]


_going_on: Final = _GoingOn()


def _new_run(graph: Any, config: Any) -> _GraphRun:
    configurable = import_module("langchain_core.runnables.config").ensure_config(config).get("configurable", {})
    thread = configurable.get("thread_id")
    run = _GraphRun.within(None if thread is None else str(thread))
    run.thread = None if thread is None else str(thread)
    run.goes_on = graph.checkpointer is not False
    run.keeps = thread is not None and "__pregel_task_id" not in configurable
    return run


def _stream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return _steps(guard, instance, argument("config", 1, args, kwargs), wrapped(*args, **kwargs))


def _steps(guard: Guard, graph: Any, config: Any, stream: Iterator[Any]) -> Iterator[Any]:
    run = _new_run(graph, config)
    try:
        yield from steps(stream, partial(in_run, run))
    except BaseException as error:
        try:
            if run.dies_of(error):
                run.saved = _saved(graph, run)
        finally:
            guard.ended(run, error, pauses())
        raise
    finally:
        run.over()
    guard.ended(run)


def _astream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return _asteps(guard, instance, argument("config", 1, args, kwargs), wrapped(*args, **kwargs))


@stepwise
@asynccontextmanager
async def _asteps(guard: Guard, graph: Any, config: Any, stream: AsyncIterator[Any]) -> AsyncIterator[Steps]:
    run = _new_run(graph, config)
    try:
        async with ends_of(guard, run, pauses()):  # even if it is cancelled once more
            try:
                yield Steps(stream, partial(in_run, run))
            except BaseException as error:
                if run.dies_of(error):
                    run.saved = await _asaved(graph, run)
                raise
    finally:
        run.over()


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
    with holding(tool_node_messages, _messages(instance, args, kwargs)):
        return wrapped(*args, **kwargs)


def _arun_one(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    return held(tool_node_messages, _messages(instance, args, kwargs), partial(wrapped, *args, **kwargs))


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
