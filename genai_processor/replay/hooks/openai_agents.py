# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Agents SDK: every agent of a run gets a model that answers from the record; function tools are answered.

What a tool raised is raised inside the SDK's own invoker, so that its wording of failures stays as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from copy import copy
from functools import partial
from typing import Any, Final

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.executions import Answer
from genai_processor.replay.handed_back import exception_of
from genai_processor.replay.hooks.base import Hook, Target, acompared, arguments_text, value_of
from genai_processor.replay.live import Message, Prompt, parts_of
from genai_processor.replay.parts import PartKind
from genai_processor.replay.records import Ending, Node
from genai_processor.replay.session import Session

MODULES: Final = ("agents.exceptions",)
_FAILED: Final = ("response.incomplete", "response.failed", "error", "response.error")
"""Events that the SDK makes a failure of."""
_HIDDEN: Final = "Error details are redacted."


# -- models --------------------------------------------------------------------------------------------------------------


def _get_model(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.check()
    agent = args[0] if args else kwargs["agent"]
    return _replay_model(session, None if session.models else wrapped(*args, **kwargs), agent)


def _replay_model(session: Session, live: Any, agent: Any) -> Any:
    from agents.models.interface import Model

    class ReplayModel(Model):
        """Answers from the record."""

        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            node = session.asked(_prompt(agent, system_instructions, input))
            if live is None:
                return _response(session, node)
            with session.live.asking(node):
                response = await live.get_response(system_instructions, input, *args, **kwargs)
            session.answered_live(node, parts_of(messages_of([item.model_dump() for item in response.output])))
            return response

        async def stream_response(
            self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
        ) -> AsyncIterator[Any]:
            node = session.asked(_prompt(agent, system_instructions, input))
            if live is None:
                yield _completed(_response(session, node))
                return
            events = aiter(live.stream_response(system_instructions, input, *args, **kwargs))
            async for event in acompared(session, node, events):
                if event.type == "response.completed":  # before anybody runs what it calls
                    output = event.response.output
                    session.answered_live(node, parts_of(messages_of([item.model_dump() for item in output])))
                elif event.type in _FAILED:
                    session.live.failed(node, None, event.type)
                yield event

        def __getattr__(self, name: str) -> Any:  # what a model may have beside: only a live one has it
            if live is None:
                raise AttributeError(name)
            return getattr(live, name)

    return ReplayModel()


def _prompt(agent: Any, system: str | None, given: Any) -> Prompt:
    messages: list[Message] = [{"role": "user", "parts": [{"type": "text", "content": given}]}]
    parts = parts_of(messages if isinstance(given, str) else messages_of(given))
    return Prompt(parts, (system,) if system else (), agent.name)


def messages_of(items: list[Any]) -> list[Message]:
    """Messages as the conventions write them."""
    return [_message(item) for item in items]


def _message(item: dict[str, Any]) -> Message:
    kind = item.get("type")
    if kind == "function_call":
        call = {"type": "tool_call", "id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}
        return {"role": "assistant", "parts": [call]}
    if kind == "function_call_output":
        return {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": item.get("call_id"), "result": item.get("output")}],
        }
    if kind == "reasoning":
        return {"role": "assistant", "parts": [{"type": "reasoning", "content": item.get("summary")}]}
    if "role" in item:
        content = item.get("content")
        parts = [{"type": "text", "content": content}] if isinstance(content, str) else list(map(_block, content or ()))
        return {"role": item["role"], "parts": parts}
    return {"role": "assistant", "parts": [item]}


def _block(block: Any) -> Any:
    if block.get("type") in ("input_text", "output_text"):
        return {"type": "text", "content": block.get("text")}
    return block


def _response(session: Session, node: Node) -> Any:
    from agents.items import ModelResponse
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    outcome = session.answers(node)
    if outcome.ending is not Ending.VALUE:
        raise exception_of(outcome, (*MODULES, "openai"))
    items: list[Any] = []
    for slot, part in enumerate(outcome.parts):
        if part.kind is PartKind.CALL:
            items.append(
                ResponseFunctionToolCall(
                    arguments=arguments_text(part.value),
                    call_id=session.call_id(node, slot),
                    name=part.tool or "",
                    type="function_call",
                )
            )
        elif part.kind is PartKind.TEXT:
            text = part.value if isinstance(part.value, str) else arguments_text(part.value)
            items.append(
                ResponseOutputMessage(
                    id=f"msg_{node.span_ids[0]}_{slot}",
                    content=[ResponseOutputText(annotations=[], text=text, type="output_text")],
                    role="assistant",
                    status="completed",
                    type="message",
                )
            )
    return ModelResponse(output=items, usage=Usage(), response_id=None)


def _completed(response: Any) -> Any:
    from openai.types.responses import Response, ResponseCompletedEvent

    whole = Response(
        id="resp_replay",
        created_at=0,
        model="replay",
        object="response",
        output=response.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(response=whole, sequence_number=0, type="response.completed")


# -- tools ---------------------------------------------------------------------------------------------------------------


def _invoke(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _invoked(session, wrapped, kwargs["function_tool"], kwargs["context"], kwargs["arguments"])


async def _invoked(session: Session, wrapped: Callable[..., Any], tool: Any, context: Any, arguments: str) -> Any:
    approved = bool(getattr(tool, "needs_approval", False))  # it would not be here if it had not been approved
    answer = session.called(context.tool_name, context.tool_call_id, arguments, again=approved)
    if answer.node is not None and session.enters(answer.node):
        with session.frame(answer.node.key):
            return await wrapped(function_tool=tool, context=context, arguments=arguments)
    return await wrapped(function_tool=_as_recorded(session, tool, answer), context=context, arguments=arguments)


def _as_recorded(session: Session, tool: Any, answer: Answer) -> Any:
    """A tool that is as the given one in all but its body, which comes to what is recorded."""

    async def body(*_: Any, **__: Any) -> Any:
        return await value_of(session, answer, MODULES)

    invoker = copy(tool.on_invoke_tool)
    if hasattr(invoker, "_invoke_tool_impl"):  # the SDK's own, which words failures
        invoker._invoke_tool_impl = body
    else:
        invoker = body

    async def invoke(*args: Any, **kwargs: Any) -> Any:
        return _as_worded(answer, await invoker(*args, **kwargs))

    recorded = copy(tool)
    recorded.on_invoke_tool = invoke
    return recorded


def _as_worded(answer: Answer, result: Any) -> Any:
    """What a failure was worded as in the record, where the SDK recorded only that, and no words of the failure's own."""
    outcome = answer.outcome
    if outcome.ending is not Ending.FAILURE or not len(outcome.parts) or not isinstance(result, str):
        return result
    is_hidden = outcome.error_message is None or outcome.error_message.endswith(_HIDDEN)
    return outcome.parts[0].value if is_hidden else result


def _run(session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _ran(session, partial(wrapped, *args, **kwargs))


async def _ran(session: Session, run: Callable[[], Any]) -> Any:
    session.check()
    with session.frame():
        return await run()


def _run_streamed(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.check()
    going_on = ExitStack()
    going_on.enter_context(session.running())
    with going_on, session.frame():  # which the task that is made here takes along
        result = wrapped(*args, **kwargs)
        if (task := getattr(result, "run_loop_task", None)) is not None:
            kept = going_on.pop_all()
            task.add_done_callback(lambda _: kept.close())
        return result


def _other_tool(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Tools that act by themselves (computer, shell, patches) are recorded by nobody."""
    session.stop(ReplayRefusedError("A tool other than a function was called, which no replay can answer"))


HOOK = Hook(
    "openai-agents",
    (
        Target("agents.tool", "_invoke_function_tool_with_metadata", ("function_tool", "context", "arguments"), _invoke),
        Target("agents.run_internal.turn_preparation", "get_model", ("agent", "run_config"), _get_model),
        Target("agents.run", "AgentRunner.run", ("starting_agent", "input"), _run),
        Target("agents.run", "AgentRunner.run_streamed", ("starting_agent", "input"), _run_streamed),
    ),
    tuple(
        Target("agents.run_internal.tool_actions", f"{name}.execute", (), _other_tool)
        for name in ("ApplyPatchAction", "ComputerAction", "CustomToolAction", "LocalShellAction", "ShellAction")
    ),
)
