# SPDX-License-Identifier: Apache-2.0
"""What a call of a tool returns in the OpenAI Agents SDK: results, refusals, and texts in which failures hide."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any, Final, NoReturn

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.stopping import as_theirs, stop
from genai_processor.guard.modes import RefusalMode
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners


class Failures:
    """What the SDK has turned into a text while a call ran."""

    def __init__(self) -> None:
        self.first: str | None = None

    def of(self, result: Any) -> str | None:
        """Return the failure that a result of a call stands for, in a word; None if it stands for none."""
        return self.first or ("sdk_error" if result.is_sdk_generated_error else None)

    def note(self, error: BaseException) -> None:
        """Note what the tool has raised. The first word counts."""
        self.first = self.first or type(error).__name__


current_failures: Final[ContextVar[Failures | None]] = ContextVar("genai_processor_openai_agents_failures", default=None)
"""Those of the call whose body this runs in."""


def manners(tool: Any, context: Any, failures: Failures) -> Manners:
    """Return how the SDK wants a call of a tool to be answered."""
    return Manners(
        refuse=_result,
        stop=_stop,
        failure=failures.of,
        keep=_output,
        hand_back=_handed_back,
        pauses=partial(_waits, tool, context),
        awaits_start=_says_when_it_starts(tool),
    )


def _tool_module() -> Any:
    return import_module("agents.tool")


def _result(refused: Refused) -> Any:
    return _tool_module()._FunctionToolInvocationResult(refused.text, is_sdk_generated_error=True)


def _output(result: Any) -> Any:
    return result.output


def _handed_back(output: Any) -> Any:
    return _tool_module()._FunctionToolInvocationResult(output)


def _stop(refused: Refused) -> NoReturn:
    stop(refused, _lets_out(), run_data=None)


def _lets_out() -> type[BaseException]:
    """The SDK puts whatever else a tool raises into a `UserError`."""
    base: type[BaseException] = import_module("agents.exceptions").AgentsException
    return base


def _waits(tool: Any, context: Any, result: Any) -> bool:
    """Whether the agent inside a tool waits for an approval: its run goes on where it stopped, under the same call id."""
    if not getattr(tool, "_is_agent_tool", False) or context.tool_call is None:
        return False
    state = import_module("agents.agent_tool_state")
    pending = state.peek_agent_tool_run_result(context.tool_call, scope_id=state.get_agent_tool_state_scope(context))
    return bool(getattr(pending, "interruptions", None))


def _says_when_it_starts(tool: Any) -> bool:
    """Whether the SDK made the tool's invoker, so that its body begins with `_started` or with a run of an agent."""
    invoker = tool.on_invoke_tool
    if type(invoker) is not getattr(_tool_module(), "_FailureHandlingFunctionToolInvoker", None):
        return False
    return getattr(tool, "_is_agent_tool", False) or hasattr(
        invoker._invoke_tool_impl, "__agents_function_tool_wrapped_callable__"
    )


# -- failures ------------------------------------------------------------------------------------------------------------


def format_failure(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Stands around what makes a text of whatever a tool raises: notes it, and lets a refusal speak for itself."""
    error, failures = kwargs["error"], current_failures.get()
    if failures is not None:
        failures.note(error)
    refusal = _refusal_in(error)
    if refusal is None or failures is None:
        return wrapped(*args, **kwargs)
    return _tell_refusal(guard, refusal, kwargs["function_tool"], partial(wrapped, *args, **kwargs))


async def _tell_refusal(guard: Guard, refusal: ToolSpanCommitmentError, tool: Any, say: Callable[[], Any]) -> Any:
    """A call that the tool's body made was refused: the SDK's own text would ask the model to try again."""
    if guard.on_refusal is RefusalMode.RAISE:
        raise as_theirs(refusal, _lets_out(), run_data=None) from refusal
    said = await say()
    return str(refusal) if said is not None and tool._use_default_failure_error_function else said


def _refusal_in(error: BaseException | None) -> ToolSpanCommitmentError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, ToolSpanCommitmentError):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None


def watched(tool: Any, failures: Failures) -> Any:
    """The tool; if the user words its time-outs, a copy that tells us of them, for their result looks like any other."""
    say = tool.timeout_error_function
    if say is None:
        return tool
    watched = copy(tool)

    def timed_out(context: Any, error: Exception) -> Any:
        failures.note(error)
        return say(context, error)

    watched.timeout_error_function = timed_out
    return watched
