# SPDX-License-Identifier: Apache-2.0
"""LangGraph's own `RetryPolicy`, and the one argument that lets it ask before it runs a node again.

Run it: GENAI_PROCESSOR_READ_ONLY_TOOLS=get_* python examples/langgraph_retry.py
It needs: pip install langchain langgraph opentelemetry-instrumentation-genai-langchain
"""

from __future__ import annotations

from collections import Counter

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import RetryPolicy
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import GenAIProcessorInstrumentor, is_safe_to_retry

provider = TracerProvider()
LangChainInstrumentor().instrument(tracer_provider=provider)  # any of the instrumentations of LangChain
# A bare `GenAISpanProcessor` would not do here: LangChain's spans end before the exception is on its way, so it is
# `instrument()` that sees which call it ended.
GenAIProcessorInstrumentor().instrument(tracer_provider=provider)

ran: Counter[str] = Counter()


@tool
def create_refund(order: str, amount_cents: int) -> str:
    """Refund an order."""
    ran["create_refund"] += 1  # the money has moved
    raise ConnectionError("create_refund: connection lost while waiting for the answer")


@tool
def get_rate(currency: str) -> str:
    """Look an exchange rate up."""
    ran["get_rate"] += 1
    raise ConnectionError("get_rate: connection refused")


POLICIES = {
    "stock": RetryPolicy(max_attempts=3, initial_interval=0.01),
    "asking": RetryPolicy(max_attempts=3, initial_interval=0.01, retry_on=is_safe_to_retry),  # the argument
}
CALLS = {"create_refund": {"order": "1042", "amount_cents": 2500}, "get_rate": {"currency": "EUR"}}

for name, policy in POLICIES.items():
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([create_refund, get_rate], handle_tool_errors=False), retry_policy=policy)
    graph.set_entry_point("tools")
    agent = graph.compile()
    for called, arguments in CALLS.items():
        ran.clear()
        # What a model would have answered.
        proposal = AIMessage("", tool_calls=[{"name": called, "args": arguments, "id": f"toolu_{name}_{called}"}])
        try:
            agent.invoke({"messages": [proposal]})
        except ConnectionError:
            print(f"{name}: {called}: ran {ran[called]} time(s)")
