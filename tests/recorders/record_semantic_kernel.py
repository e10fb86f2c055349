# SPDX-License-Identifier: Apache-2.0
"""Records semantic-kernel's own tracing, with and without its sensitive diagnostics.

In a virtual environment of its own:

    pip install semantic-kernel==1.45.0 openai==3.57.0 opentelemetry-sdk==1.45.2
    python tests/recorders/record_semantic_kernel.py
"""

import os

import _lab


def main(choice: str) -> None:
    content = choice == "content"
    os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS"] = "true"
    os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"] = str(content).lower()
    lab = _lab.Lab("semantic-kernel", "semantic-kernel", "native", "semantic-kernel", content, rename="lab-{}".format)
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import KernelPlugin, kernel_function

    async def run(scenario, tools):
        plugin = KernelPlugin(name="lab", functions=[kernel_function(tool) for tool in tools])
        service = OpenAIChatCompletion(ai_model_id="gpt-4o", async_client=lab.openai_client())
        agent = ChatCompletionAgent(service=service, name="refunder", instructions="Refund orders.", plugins=[plugin])
        await agent.get_response(_lab.PROMPT)

    more = (  # it converts with str() and int(): the list runs, as the text "['o1']"
        _lab.Scenario(
            "s04c_list_for_string", ((("create_refund", {"order_id": ["o1"], "amount_cents": 500}),),), ("commit_raise",)
        ),
        _lab.Scenario(
            "s04d_null_for_integer", ((("create_refund", {"order_id": "o1", "amount_cents": None}),),), ("commit_raise",)
        ),
    )
    lab.record(
        run, skip=("s09b",), more=more if content else ()
    )  # s09b: plain functions run on the event loop, nothing cancels them


_lab.command(main, ("content", "nocontent"))
