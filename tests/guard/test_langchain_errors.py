# SPDX-License-Identifier: Apache-2.0
"""LangChain's own tools, with the official instrumentation, and what is known of what they raise."""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import GenAIProcessorInstrumentor, is_safe_to_retry

METHODS = ("run", "arun", "_to_args_and_kwargs")
MODES = ("off", "observe", "enforce")


def standing() -> list[Any]:
    return [inspect.getattr_static(BaseTool, name) for name in METHODS]


@tool
def get_rate(currency: str) -> str:
    """Look a rate up."""
    raise ConnectionError("get_rate: refused")


@tool
async def get_rate_async(currency: str) -> str:
    """Look a rate up."""
    raise ConnectionError("get_rate_async: refused")


@tool
def create_refund(order: str) -> str:
    """Refund an order."""
    raise ConnectionError("create_refund: lost")


@pytest.fixture(params=MODES)
def tracer(request: pytest.FixtureRequest) -> Iterator[Any]:
    before = standing()
    provider = TracerProvider(shutdown_on_exit=False)
    LangChainInstrumentor().instrument(tracer_provider=provider)
    GenAIProcessorInstrumentor().instrument(
        tracer_provider=provider, read_only_tools="get_*", metrics=False, guard=request.param
    )
    yield provider.get_tracer("app")
    GenAIProcessorInstrumentor().uninstrument()
    LangChainInstrumentor().uninstrument()
    assert all(now is then for now, then in zip(standing(), before, strict=True))  # a wrapper would be equal


def raised(tracer: Any, called: BaseTool, way: str, **arguments: Any) -> Exception:
    request = {"name": called.name, "args": arguments, "id": f"toolu_{called.name}{way}", "type": "tool_call"}
    with tracer.start_as_current_span("run"):
        try:
            called.invoke(request) if way == "invoke" else asyncio.run(called.ainvoke(request))
        except ConnectionError as error:
            return error
    raise AssertionError("it came back")


@pytest.mark.parametrize(
    ("called", "way"),
    [(get_rate, "invoke"), (get_rate, "ainvoke"), (get_rate_async, "ainvoke")],
    ids=lambda one: str(one)[:20],
)
def test_a_read_only_tool_may_be_tried_again(tracer: Any, called: BaseTool, way: str) -> None:
    assert is_safe_to_retry(raised(tracer, called, way, currency="EUR"))


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_one_that_may_have_committed_may_not(tracer: Any, way: str) -> None:
    assert not is_safe_to_retry(raised(tracer, create_refund, way, order="1042"))


def test_what_comes_back_is_what_came_back(tracer: Any) -> None:
    @tool
    def get_place(city: str) -> str:
        """Look a place up."""
        return f"{city} is there"

    assert get_place.invoke({"city": "Lyon"}) == "Lyon is there"
    assert asyncio.run(get_place.ainvoke({"city": "Lyon"})) == "Lyon is there"
    assert asyncio.iscoroutinefunction(BaseTool.arun)


def test_a_version_that_is_not_known_is_left_alone_and_said_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def other(self: Any, something: str) -> None: ...

    monkeypatch.setattr(BaseTool, "_to_args_and_kwargs", other)
    before = standing()
    with caplog.at_level(logging.WARNING):
        GenAIProcessorInstrumentor().instrument(tracer_provider=TracerProvider(shutdown_on_exit=False), guard="off")
    try:
        assert all(now is then for now, then in zip(standing(), before, strict=True))
    finally:
        GenAIProcessorInstrumentor().uninstrument()
    assert caplog.text.count("is_safe_to_retry answers False for what its tools raise") == 1


def test_under_a_wrapper_of_somebody_else_it_does_nothing_any_more(tracer: Any) -> None:
    ours = inspect.getattr_static(BaseTool, "run")
    original = inspect.unwrap(ours)

    def around(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    type.__setattr__(BaseTool, "run", around)
    GenAIProcessorInstrumentor().uninstrument()
    try:
        assert inspect.getattr_static(BaseTool, "run") is around
        with pytest.raises(ConnectionError) as caught:
            get_rate.invoke({"currency": "EUR"})
        assert not is_safe_to_retry(caught.value)
    finally:
        type.__setattr__(BaseTool, "run", original)


_BEFORE_LANGCHAIN = """
import inspect, sys
from genai_processor import GenAIProcessorInstrumentor
GenAIProcessorInstrumentor().instrument(guard=sys.argv[1], metrics=False)
from langchain_core.tools import BaseTool
names = {"run", "arun", "_to_args_and_kwargs"}
wrapped = {name for name in names if type(inspect.getattr_static(BaseTool, name)).__name__ == "FunctionWrapper"}
assert wrapped == names, wrapped
GenAIProcessorInstrumentor().uninstrument()
left = {name for name in names if not inspect.isfunction(inspect.getattr_static(BaseTool, name))
        or type(inspect.getattr_static(BaseTool, name)).__name__ == "FunctionWrapper"}
assert not left, left
"""


@pytest.mark.parametrize("mode", MODES)
def test_it_leaves_nothing_behind_of_what_is_imported_later(mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _BEFORE_LANGCHAIN, mode],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
