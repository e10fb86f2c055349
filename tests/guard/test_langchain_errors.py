# SPDX-License-Identifier: Apache-2.0
"""LangChain's own tools, with the official instrumentation, and what is known of what they raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import GenAIProcessorInstrumentor, is_safe_to_retry
from genai_processor.guard.langchain_errors import LangChainErrors

METHODS = ("run", "arun", "_to_args_and_kwargs")


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


@pytest.fixture
def tracer() -> Iterator[Any]:
    before = {name: BaseTool.__dict__[name] for name in METHODS}
    provider = TracerProvider(shutdown_on_exit=False)
    LangChainInstrumentor().instrument(tracer_provider=provider)
    GenAIProcessorInstrumentor().instrument(tracer_provider=provider, read_only_tools="get_*", metrics=False)
    yield provider.get_tracer("app")
    GenAIProcessorInstrumentor().uninstrument()
    LangChainInstrumentor().uninstrument()
    assert {name: BaseTool.__dict__[name] for name in METHODS} == before


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


def test_a_version_that_is_not_known_is_left_alone_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    class Changed:
        def run(self, other: str) -> None: ...
        async def arun(self, tool_input: str) -> None: ...
        def _to_args_and_kwargs(self, tool_input: str, tool_call_id: str) -> None: ...

    before = dict(Changed.__dict__)
    hook = LangChainErrors()
    hook.leave()
    hook._left = False
    with caplog.at_level(logging.WARNING):
        hook._imported(SimpleNamespace(BaseTool=Changed))
        hook._imported(SimpleNamespace(other=1))
    assert dict(Changed.__dict__) == before
    assert "left alone" in caplog.text


def test_under_a_wrapper_of_somebody_else_it_does_nothing_any_more(tracer: Any) -> None:
    ours = BaseTool.__dict__["run"]

    def around(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    type.__setattr__(BaseTool, "run", around)
    GenAIProcessorInstrumentor().uninstrument()
    try:
        assert BaseTool.__dict__["run"] is around
        with pytest.raises(ConnectionError) as caught:
            get_rate.invoke({"currency": "EUR"})
        assert not is_safe_to_retry(caught.value)
    finally:
        type.__setattr__(BaseTool, "run", ours.__wrapped__)
