# SPDX-License-Identifier: Apache-2.0
"""LangChain's tools and retrievers, where they are run by themselves.

A tool in LangGraph's `ToolNode` is answered there (`hooks.langgraph`), where its call is still as the model made it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from genai_processor.replay.executions import Answer
from genai_processor.replay.hooks.base import Hook, Target, bound_to, handed, value_now, value_of
from genai_processor.replay.hooks.langchain import MODULES
from genai_processor.replay.records import Ending
from genai_processor.replay.session import Session

_ANSWERED: Final = "_genai_processor_replay_answered"
"""What a tool has that has been answered already, by whoever runs it. The tool has it and not its context: in that, error
handlers and callbacks of the application run, too, and what they call has not been answered."""


def as_recorded(session: Session, tool: Any, answer: Answer) -> Any:
    """A tool that is as the given one in all but its body, which comes to what is recorded."""
    makers = {"GraphInterrupt": _interrupt, "NodeInterrupt": _interrupt}

    def run(*_: Any, **__: Any) -> Any:
        return value_now(session, answer, MODULES, makers)

    async def arun(*_: Any, **__: Any) -> Any:
        return await value_of(session, answer, MODULES, makers)

    changed: dict[str, Any] = {"response_format": "content"}
    if "coroutine" in type(tool).model_fields:  # without one, asynchronous runs would wait in a thread
        changed["coroutine"] = arun
    return _with(tool, changed, _run=run, _arun=arun, **{_ANSWERED: True})


def entered(tool: Any) -> Any:
    """A tool that is as the given one, and whose body runs; what that calls is answered."""
    return _with(tool, {}, _run=tool._run, _arun=tool._arun, **{_ANSWERED: True})


def _with(model: Any, changed: dict[str, Any], **own: Any) -> Any:
    """A copy of one of LangChain's models, which let nobody set what is no field of theirs."""
    copied = model.model_copy(update=changed)
    for name, value in own.items():
        object.__setattr__(copied, name, value)
    return copied


def _is_answered(tool: Any) -> bool:
    return _ANSWERED in vars(tool)


def _interrupt(message: str) -> BaseException:
    from langgraph.config import get_config
    from langgraph.errors import GraphInterrupt
    from langgraph.types import Interrupt

    values = _interrupt_values(message)
    try:  # the id by which it can be resumed is of the graph that runs now
        place = get_config()["configurable"]["checkpoint_ns"]
        return GraphInterrupt(tuple(Interrupt.from_ns(value=value, ns=place) for value in values))
    except (AttributeError, KeyError, RuntimeError):
        return GraphInterrupt(tuple(Interrupt(value=value) for value in values))


def _interrupt_values(message: str) -> list[Any]:
    """What was asked for, out of what an exception says: `(Interrupt(value={'confirm': 1}, id='…'),)`."""
    try:
        said = ast.parse(message.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return [message]
    shown = said.elts if isinstance(said, (ast.Tuple, ast.List)) else [said]
    found = [given.value for one in shown if isinstance(one, ast.Call) for given in one.keywords if given.arg == "value"]
    if not found or len(found) != len(shown):
        return [message]
    return [_literal(value) for value in found]


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return ast.unparse(value)


# -- tools that are run by themselves ------------------------------------------------------------------------------------


def _run(session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _is_answered(instance):
        return wrapped(*args, **kwargs)
    answer = _called(session, instance, args, kwargs)
    if answer.node is not None and session.enters(answer.node):
        with session.frame(answer.node.key):
            return bound_to(wrapped, entered(instance))(*args, **kwargs)
    return bound_to(wrapped, as_recorded(session, instance, answer))(*args, **kwargs)


def _arun(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return wrapped(*args, **kwargs) if _is_answered(instance) else _aran(session, wrapped, instance, args, kwargs)


async def _aran(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    answer = _called(session, instance, args, kwargs)
    if answer.node is not None and session.enters(answer.node):
        with session.frame(answer.node.key):
            return await bound_to(wrapped, entered(instance))(*args, **kwargs)
    return await bound_to(wrapped, as_recorded(session, instance, answer))(*args, **kwargs)


def _called(session: Session, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    given = args[0] if args else kwargs.get("tool_input")
    return session.called(tool.name, kwargs.get("tool_call_id"), given)


# -- retrievers ----------------------------------------------------------------------------------------------------------


def _retrieve(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`invoke` as well as `ainvoke`: both ask for the documents below their callbacks."""
    answer = session.retrieved(args[0] if args else kwargs["input"])

    def get(*_: Any, **__: Any) -> Any:
        return _documents(session, answer)

    async def aget(*_: Any, **__: Any) -> Any:
        return _documents(session, answer)

    recorded = _with(instance, {}, _get_relevant_documents=get, _aget_relevant_documents=aget)
    return bound_to(wrapped, recorded)(*args, **kwargs)


def _documents(session: Session, answer: Answer) -> list[Any]:
    from langchain_core.documents import Document

    if answer.outcome.ending is not Ending.VALUE:
        value_now(session, answer, MODULES)
    made: list[Any] = []
    for part in answer.outcome.parts:
        said = part.value if isinstance(part.value, dict) else {"content": part.value}
        text = next(
            (said[key] for key in ("page_content", "content", "text") if isinstance(said.get(key), str)), str(part.value)
        )
        metadata = handed(said.get("metadata"))
        made.append(Document(page_content=text, metadata=metadata if isinstance(metadata, dict) else {}))
    return made


HOOK = Hook(
    "LangChain",
    (
        Target("langchain_core.tools.base", "BaseTool.run", ("tool_input", "tool_call_id"), _run),
        Target("langchain_core.tools.base", "BaseTool.arun", ("tool_input", "tool_call_id"), _arun),
        Target("langchain_core.retrievers", "BaseRetriever.invoke", ("input",), _retrieve),
        Target("langchain_core.retrievers", "BaseRetriever.ainvoke", ("input",), _retrieve),
    ),
)
