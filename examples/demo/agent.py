# SPDX-License-Identifier: Apache-2.0
"""A support agent with one tool that pays refunds, and the loop that people put around such an agent.

The agent is a real pydantic-ai agent; only its model is scripted, so that no key and no network is needed.
It is an ordinary application, and knows nothing of genai_processor.
"""

from __future__ import annotations

import os

import httpx
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

TICKET = "ticket-7"
REQUEST = "Please refund order 1042, 25.00 EUR."


def scripted_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for the refund, then says that it is done. As with a real model, each proposal has a call id of its own."""
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("Your refund is on its way.")])
    return ModelResponse(parts=[ToolCallPart("create_refund", {"order": "1042", "amount_cents": 2500})])


def support_agent(payments_url: str) -> Agent:
    """The agent: its tool asks the payment service over HTTP."""
    agent = Agent(FunctionModel(scripted_model, model_name="scripted"), name="support")

    @agent.tool_plain
    def create_refund(order: str, amount_cents: int) -> str:
        """Pay money back to a customer."""
        answer = httpx.post(f"{payments_url}/refunds", json={"order": order, "amount_cents": amount_cents})
        answer.raise_for_status()
        return "paid"

    return agent


def naive_loop(agent: Agent) -> str:
    """What most retry code does: whatever failed is tried again."""
    for _ in range(3):
        try:
            return agent.run_sync(REQUEST, conversation_id=TICKET).output
        except httpx.HTTPError:
            continue
    raise RuntimeError("three attempts have failed")


if __name__ == "__main__":
    Agent.instrument_all()
    print(naive_loop(support_agent(os.environ["PAYMENTS_URL"])))
